"""Op times of a real stage: F, B, and I and W as torch's pipelining runtime splits B."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ppsim.errors import InputError, PpsimError
from ppsim.inputs.profile.profile import Activation, OpTime, Workload
from ppsim.real.calibration.clock import CallTime, Tick, Watch, spread, stopwatch
from ppsim.real.calibration.stage_ops import StageOps, stage_ops

Times = tuple[float, float]  # ms on the device, and on the host


@dataclass(frozen=True)
class Part:
    """A part of a model that is measured alone."""

    name: str  # layers, embedding or head
    layers: int  # number of layers
    module: Any  # the torch module
    make_input: Callable[[], Any]
    loss: Callable[[Any], Any] | None  # the head's loss
    cold: bool = True  # whether caches are flushed before each op
    pair: bool = False  # whether a pair of F and B is measured too

    @property
    def splits(self) -> bool:
        """Whether its backward can be split: token numbers have no gradient."""
        return self.name != "embedding"

    @property
    def cache(self) -> str:
        """The state of caches before each op, as a profile names it."""
        return "cold" if self.cold else "warm"

    def forward(self, x: Any) -> Any:
        """Return the output of the module, or its loss."""
        out = self.module(x)
        return self.loss(out) if self.loss else out

    @property
    def ops(self) -> StageOps:
        """The functions of its ops; F ends in the loss if there is one."""
        return replace(stage_ops(self.module, first=False), forward=self.forward)


def layer_counts(layers: int) -> list[int]:
    """Return the numbers of layers to measure: 0 (overhead), 1, 2, 4 and the model's."""
    return sorted({n for n in (0, 1, 2, 4) if n <= 2 * layers} | {layers})


def rounds(model: Workload, repeats: int, warm_up: int) -> int:
    """Return the number of times that :func:`measure_ops` calls ``tick``."""
    return (repeats + warm_up) * (len(layer_counts(model.layers)) + 1 + 2 * (model.vocab > 0))


def measure_ops(
    model: Workload, device: str, *, repeats: int, warm_up: int, tick: Tick
) -> list[OpTime]:
    """Return the times of each op: of several numbers of layers, of embedding and of head.

    Each repetition measures all parts in turn, so that a drift of the machine affects all equally.

    Raises:
        InputError: the shape does not fit into memory, or the device cannot compute in this dtype.
        MissingDependency: this torch cannot split a backward.
    """
    watch = stopwatch(device)
    try:
        with one_thread(device):
            parts = parts_of(model, device)
            runs = [
                (
                    f"{part.name} {part.layers or ''}".rstrip(),
                    partial(
                        time_once,
                        part.ops,
                        part.make_input,
                        watch,
                        cold=part.cold,
                        splits=part.splits,
                        pairs=part.pair,
                    ),
                )
                for part in parts
            ]
            found = collect(runs, repeats, warm_up, tick)
    except (RuntimeError, MemoryError) as error:
        raise _stage_error(error, model, device) from error
    return [
        op_time(part.name, kind, part.layers, timed, cache=part.cache)
        for part, samples in zip(parts, found, strict=True)
        for kind, timed in samples.items()
    ]


@contextmanager
def one_thread(device: str) -> Iterator[None]:
    """Compute with one thread on a CPU for the block, as each of a run's processes does."""
    import torch

    threads = torch.get_num_threads()
    try:
        if device == "cpu":
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)


def collect(
    runs: Sequence[tuple[str, Callable[[], Iterator[tuple[str, CallTime]]]]],
    repeats: int,
    warm_up: int,
    tick: Tick,
) -> list[dict[str, list[Times]]]:
    """Repeat all runs in turn, and return the times of each run by kind, without the warm-up.

    Args:
        runs: pairs of a name and a function that yields kinds of ops with their times.
        repeats: measured repetitions.
        warm_up: repetitions before the measured ones, discarded.
        tick: called with the name after each run.
    """
    found: list[dict[str, list[Times]]] = [defaultdict(list) for _ in runs]
    for repetition in range(repeats + warm_up):
        for (name, run), samples in zip(runs, found, strict=True):
            for kind, timed in run():
                if repetition >= warm_up:
                    samples[kind].append((timed.ms, timed.host_ms))
            tick(name)
    return found


def op_time(part: str, kind: str, layers: int, times: Sequence[Times], **more: Any) -> OpTime:
    """Return a profile's row for the times of an op; ``more`` are further fields of the row."""
    ms, host = (list(each) for each in zip(*times, strict=True))
    return OpTime(part, kind, layers, host_ms=spread(host)["median_ms"], **more, **spread(ms))


def measure_activations(model: Workload, device: str) -> list[Activation]:
    """Return the bytes that one microbatch holds in several numbers of layers, and in the head."""
    from ppsim.real.calibration.memory import activation_bytes

    result = []
    for part in parts_of(model, device):
        if (part.cold and part.layers) or part.name == "head":
            bytes_after = activation_bytes(part.module, part.ops, part.make_input)
            result.append(Activation(part.name, part.layers, *bytes_after))
    return result


def parts_of(model: Workload, device: str) -> list[Part]:
    """Return the parts of the model that are measured alone."""
    from ppsim.real.calibration import stage

    def activations() -> Any:
        return stage.activations(model, device)

    modules = {count: stage.layers(model, count, device) for count in layer_counts(model.layers)}
    parts = [
        Part("layers", count, module, activations, None, pair=count == model.layers)
        for count, module in modules.items()
    ]
    parts.append(Part("layers", model.layers, modules[model.layers], activations, None, cold=False))
    if model.vocab:
        words, targets = stage.tokens(model, device), stage.tokens(model, device)
        parts.append(Part("embedding", 0, stage.embedding(model, device), lambda: words, None))
        parts.append(
            Part(
                "head",
                0,
                stage.head(model, device),
                activations,
                lambda scores: stage.loss(scores, targets),
            )
        )
    return parts


def time_once(
    ops: StageOps,
    make_input: Callable[[], Any],
    watch: Watch,
    *,
    cold: bool = True,
    splits: bool = True,
    pairs: bool = True,
) -> Iterator[tuple[str, CallTime]]:
    """Run microbatches once, and yield the kind and time of each op.

    The first has a full backward, the second a split one if ``splits``. Then comes a pair of F and
    B, if ``pairs`` or if ``ops`` has a function for it.
    """
    import torch

    def start() -> tuple[CallTime, Any, Any, Any]:
        x = make_input()
        timed = watch(lambda: ops.forward(x), cold)
        out = timed.result
        return timed, x, out, torch.randn_like(out) if out.ndim else None

    timed, x, out, grad = start()
    yield "F", timed
    timed = watch(lambda: ops.backward(x, out, grad), cold)
    yield "B", timed
    del out
    if splits:
        _, x, out, grad = start()
        timed = watch(lambda: ops.backward_input(x, out, grad), cold)
        yield "I", timed
        saved = timed.result[1]
        timed = watch(lambda: ops.backward_weight(saved), cold)
        yield "W", timed
        del saved
    if not (pairs or ops.pair):
        return
    _, x, out, grad = start()
    other = make_input()

    def backward() -> None:
        ops.backward(x, out, grad)

    pair = ops.pair or (
        lambda other, run: run_together(lambda: ops.forward(other), run, out.device.type)
    )
    yield "FB", watch(lambda: pair(other, backward), cold)


def run_together(forward: Callable[[], Any], backward: Callable[[], Any], device: str) -> Any:
    """Run a forward and a backward: on two streams of a GPU, one after the other on a CPU."""
    import torch

    if device == "cpu":
        return forward(), backward()
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        out = forward()
    backward()  # autograd runs it on the stream of its forward, the current one
    current.wait_stream(side)
    return out


def _stage_error(error: Exception, model: Workload, device: str) -> PpsimError:
    """Return the user's error for an exception of torch."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "not implemented for" in text:
        return InputError(f"{device} cannot compute in {model.dtype}: {text}", "--dtype float32")
    if isinstance(error, MemoryError) or "memory" in text.lower():
        return InputError(
            f"this stage does not fit into memory: {text}",
            "a smaller --hidden, --seq, --mbs or --layers",
        )
    return PpsimError(f"torch cannot run this stage: {text}", "another shape or --dtype")
