"""Op times of a real stage: F, B, and B split into I and W the way torch's pipelining runtime splits it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ppsim.errors import InputError, PpsimError
from ppsim.inputs.profile.profile import Activation, OpTime, Workload
from ppsim.real.calibration.clock import spread, stopwatch
from ppsim.real.calibration.stage_ops import backward_functions, stage_ops

Tick = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """Something to measure: its module, its input and, for the head, its loss."""

    name: str
    layers: int
    module: Any
    make_input: Callable[[], Any]
    loss: Callable[[Any], Any] | None
    cold: bool = True
    pair: bool = False

    def forward(self, x: Any) -> Any:
        """The part's output, or its loss."""
        out = self.module(x)
        return self.loss(out) if self.loss else out


def layer_counts(layers: int) -> list[int]:
    """The layer counts measured: none, which shows what every action costs beside its layers; 1, 2, 4; the model's."""
    return sorted({n for n in (0, 1, 2, 4) if n <= 2 * layers} | {layers})


def rounds(model: Workload, repeats: int, warm_up: int) -> int:
    """How often ``measure_ops`` ticks."""
    return (repeats + warm_up) * (len(layer_counts(model.layers)) + 1 + 2 * (model.vocab > 0))


def measure_ops(model: Workload, device: str, *, repeats: int, warm_up: int, tick: Tick) -> list[OpTime]:
    """Times of every op of the model's layers at several counts, of its embedding and of its head.

    Every repetition visits all parts in turn, so that a drift of the machine reaches all of them alike.

    Raises:
        InputError: the shape does not fit into memory, or the device cannot compute in this dtype.
        MissingDependency: this torch cannot split a backward.
    """
    import torch

    watch = stopwatch(device)
    samples: dict[tuple[str, str, int, str], list[float]] = defaultdict(list)
    hosts: dict[tuple[str, str, int, str], list[float]] = defaultdict(list)
    threads = torch.get_num_threads()
    try:
        if device == "cpu":
            torch.set_num_threads(1)  # one device is one process with one thread, as in a run of P processes
        parts = parts_of(model, device)
        for repetition in range(repeats + warm_up):
            for part in parts:
                for kind, ms, host in _once(part, watch):
                    if repetition >= warm_up:
                        key = (part.name, kind, part.layers, "cold" if part.cold else "warm")
                        samples[key].append(ms)
                        hosts[key].append(host)
                tick(f"{part.name} {part.layers or ''}".rstrip())
    except (RuntimeError, MemoryError) as error:
        raise _explained(error, model, device) from error
    finally:
        torch.set_num_threads(threads)
    return [
        OpTime(part, kind, layers, cache=cache, host_ms=spread(hosts[key])["median_ms"], **spread(values))
        for key, values in samples.items()
        for part, kind, layers, cache in [key]
    ]


def measure_activations(model: Workload, device: str) -> list[Activation]:
    """Bytes that one microbatch holds in layers, at several counts, and in the head."""
    from ppsim.real.calibration.memory import activation_bytes

    result = []
    for part in parts_of(model, device):
        if (part.cold and part.layers) or part.name == "head":
            held = activation_bytes(
                part.module, replace(stage_ops(part.module, first=False), forward=part.forward), part.make_input
            )
            result.append(Activation(part.name, part.layers, *held))
    return result


def parts_of(model: Workload, device: str) -> list[Part]:
    """Everything of the model that is measured by itself, with what to put in."""
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
            Part("head", 0, stage.head(model, device), activations, lambda scores: stage.loss(scores, targets))
        )
    return parts


def _once(part: Part, watch: Any) -> Iterator[tuple[str, float, float]]:
    """One microbatch with a full backward, one with a split backward, and a pair: kind, ms, host ms."""
    import torch

    full, half, weight = backward_functions()

    def started() -> tuple[Any, Any, Any, Any]:
        x = part.make_input()
        timed = watch(lambda: part.forward(x), part.cold)
        grad = None if part.loss else torch.randn_like(timed.result)
        return timed, x, timed.result, grad

    timed, x, out, grad = started()
    yield "F", timed.ms, timed.host_ms
    timed = watch(lambda: full((out,), (grad,), (x,)), part.cold)
    yield "B", timed.ms, timed.host_ms
    del out
    if part.name != "embedding":  # token numbers have no gradient, so there is nothing to split
        weights = list(part.module.parameters())
        _, x, out, grad = started()
        timed = watch(lambda: half([out], None if grad is None else [grad], [x], iter(weights)), part.cold)
        yield "I", timed.ms, timed.host_ms
        groups = timed.result[1]
        timed = watch(lambda: weight(iter(weights), groups), part.cold)
        yield "W", timed.ms, timed.host_ms
        del groups
    if part.pair:
        _, x, out, grad = started()
        other = part.make_input()
        timed = watch(
            lambda: run_together(lambda: part.forward(other), lambda: full((out,), (grad,), (x,)), out.device.type),
            part.cold,
        )
        yield "FB", timed.ms, timed.host_ms


def run_together(forward: Callable[[], Any], backward: Callable[[], Any], device: str) -> Any:
    """Issue a forward and a backward of two microbatches together: on two streams of a GPU, in turn on a CPU."""
    import torch

    if device == "cpu":
        return forward(), backward()
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(here)
    with torch.cuda.stream(side):
        out = forward()
    backward()  # autograd runs it on the stream of its own forward, the current one
    here.wait_stream(side)
    return out


def _explained(error: Exception, model: Workload, device: str) -> PpsimError:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "not implemented for" in text:
        return InputError(f"{device} cannot compute in {model.dtype}: {text}", "--dtype float32")
    if isinstance(error, MemoryError) or "memory" in text.lower():
        return InputError(
            f"this stage does not fit into memory: {text}", "a smaller --hidden, --seq, --mbs or --layers"
        )
    return PpsimError(f"torch cannot run this stage: {text}", "another shape or --dtype")
