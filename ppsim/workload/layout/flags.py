"""Megatron's flags for the split of layers: from flags to a layout, and from a layout to flags."""

from __future__ import annotations

from dataclasses import dataclass

from ppsim.errors import InputError
from ppsim.workload.layout.layout import Layout, build_layout


@dataclass(frozen=True)
class Flags:
    """Megatron's flags that split layers over stages.

    Attributes:
        num_layers: ``--num-layers``.
        devices: ``--pipeline-model-parallel-size``.
        chunks: ``--num-virtual-stages-per-pipeline-rank``.
        first: ``--decoder-first-pipeline-num-layers``: layers of the first device, or None.
        last: ``--decoder-last-pipeline-num-layers``: layers of the last device, or None.
        account_embedding: ``--account-for-embedding-in-pipeline-split``: the embedding counts as a
            layer.
        account_loss: ``--account-for-loss-in-pipeline-split``: the loss counts as a layer.
        mtp: ``--mtp-num-layers``.
    """

    num_layers: int
    devices: int
    chunks: int = 1
    first: int | None = None
    last: int | None = None
    account_embedding: bool = False
    account_loss: bool = False
    mtp: int = 0

    def __str__(self) -> str:
        words = [
            f"--pipeline-model-parallel-size {self.devices}",
            f"--num-layers {self.num_layers}",
        ]
        words += [f"--num-virtual-stages-per-pipeline-rank {self.chunks}"] * (self.chunks > 1)
        words += [f"--mtp-num-layers {self.mtp}"] * (self.mtp > 0)
        words += [f"--decoder-first-pipeline-num-layers {self.first}"] * (self.first is not None)
        words += [f"--decoder-last-pipeline-num-layers {self.last}"] * (self.last is not None)
        words += ["--account-for-embedding-in-pipeline-split"] * self.account_embedding
        words += ["--account-for-loss-in-pipeline-split"] * self.account_loss
        return " ".join(words)


def layout_from(flags: Flags) -> Layout:
    """Return the layout that Megatron makes of these flags.

    A device's layers are divided evenly over its chunks; all first chunks precede all second ones.

    Raises:
        InputError: Megatron refuses the flags; the message names the rule, the hint numbers that
            work.
    """
    for name, value in (
        ("num-layers", flags.num_layers),
        ("devices", flags.devices),
        ("chunks", flags.chunks),
    ):
        if value < 1:
            raise InputError(f"--{name} must be 1 or more, got {value}")
    if flags.devices * flags.chunks > MOST_STAGES:
        raise InputError(
            f"{flags.devices * flags.chunks:,} stages are too many", f"{MOST_STAGES:,} at most"
        )
    if flags.first is not None or flags.last is not None:
        per_device = _device_layers(flags)
        per_stage = [layers // flags.chunks for _ in range(flags.chunks) for layers in per_device]
    else:
        per_stage = _even_stage_layers(flags)
    return build_layout(per_stage, flags.devices, flags.mtp)


MOST_STAGES, MOST_SUGGESTED = 1_000_000, 1_000
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"


def _device_layers(flags: Flags) -> list[int]:
    """Return the layers of each device where flags state those of the first or last device."""
    if flags.account_embedding or flags.account_loss:
        raise InputError(
            f"{FIRST} and {LAST} cannot be given with --account-for-...-in-pipeline-split (rule "
            f"one-way-to-split)",
            "one of the two ways, or a layout string",
        )
    ends = [
        (name, layers)
        for name, layers in ((FIRST, flags.first), (LAST, flags.last))
        if layers is not None
    ]
    for name, layers in ends:
        if layers < 1:
            raise InputError(
                f"{name} must be larger than 0, got {layers} (rule end-layers)",
                f"{name} {flags.chunks}",
            )
        if layers % flags.chunks:
            raise _division_error(flags, name, layers, flags.chunks, "chunks", "end-chunks")
    end_layers = sum(layers for _, layers in ends)
    middle, left = flags.devices - len(ends), flags.num_layers - end_layers
    if middle < 0 or left < 0 or (left and not middle):
        raise InputError(
            f"{end_layers} of {flags.num_layers} layers are on the end devices, with "
            f"{max(middle, 0)} devices between them (rule middle-layers)",
            f"--num-layers {end_layers + middle * flags.chunks}"
            if middle >= 0
            else "--devices 2, or one of the two flags",
        )
    if middle and left % middle:
        raise _division_error(
            flags,
            "the rest of --num-layers",
            left,
            middle,
            "devices between the ends",
            "middle-devices",
        )
    each = left // max(1, middle)  # 0 where the ends hold all layers; Megatron accepts that
    if each % flags.chunks:
        raise _division_error(
            flags,
            "the layers of a device between the ends",
            each,
            flags.chunks,
            "chunks",
            "middle-chunks",
        )
    first = [] if flags.first is None else [flags.first]
    return [*first, *[each] * middle, *([] if flags.last is None else [flags.last])]


def _even_stage_layers(flags: Flags) -> list[int]:
    """Return the layers of each stage in an even split.

    Embedding and loss count as layers if the flags say so.
    """
    stages = flags.devices * flags.chunks
    counted = flags.num_layers + flags.account_embedding + flags.account_loss
    noun = "--num-layers"
    if counted > flags.num_layers:
        noun += " with embedding or loss counted"
    if counted % flags.devices:
        raise _division_error(flags, noun, counted, flags.devices, "devices", "even-devices")
    if counted % stages:
        raise _division_error(
            flags,
            "the layers of a device",
            counted // flags.devices,
            flags.chunks,
            "chunks",
            "even-chunks",
        )
    per_stage = [counted // stages] * stages
    per_stage[0] -= flags.account_embedding
    per_stage[-1] -= flags.account_loss
    if min(per_stage) < 0:
        raise InputError(
            "embedding and loss count as more layers than the only stage has (rule end-room)",
            "more --num-layers",
        )
    return per_stage


def _division_error(
    flags: Flags, noun: str, number: int, parts: int, part_noun: str, rule: str
) -> InputError:
    """Return the error for a number of layers that does not divide, with numbers that do."""
    below, above = number // parts * parts, -(-number // parts) * parts
    near = f"{above}" if not below else f"{below} or {above}"
    layout = _split_unevenly(flags)
    return InputError(
        f"{noun}: {number} does not divide over {parts} {part_noun} (rule {rule})",
        f"{near} there, or the layout '{layout}'"
        if layout
        else f"{near} there, or a layout string",
    )


def _split_unevenly(flags: Flags) -> Layout | None:
    """Return the layout nearest to these flags, or None where there is none.

    Remainders of divisions go to the first stages.
    """
    P, V = flags.devices, flags.chunks
    stage_layers: list[int | None] = [None] * (P * V)
    for device, layers in ((0, flags.first), (P - 1, flags.last)):
        if layers is not None:
            stage_layers[device::P] = [layers // V + (chunk < layers % V) for chunk in range(V)]
    free = [stage for stage, layers in enumerate(stage_layers) if layers is None]
    left = (
        flags.num_layers
        + flags.account_embedding
        + flags.account_loss
        - sum(n for n in stage_layers if n is not None)
    )
    if left < 0 or not free or P * V > MOST_SUGGESTED:
        return None
    each, more = divmod(left, len(free))
    for place, stage in enumerate(free):
        stage_layers[stage] = each + (place < more)
    per_stage = [n or 0 for n in stage_layers]
    per_stage[0] -= flags.account_embedding
    per_stage[-1] -= flags.account_loss
    return None if min(per_stage) < 0 else build_layout(per_stage, P, flags.mtp)


def flags_of(layout: Layout) -> str:
    """Return the flags by which Megatron makes this layout.

    ``--pipeline-model-parallel-layout`` is among them only if no shorter flags make it.
    """
    for flags in _candidate_flags(layout):
        try:
            if layout_from(flags) == layout:
                return str(flags)
        except InputError:
            continue
    words = [
        f"--pipeline-model-parallel-size {layout.n_devices}",
        f"--num-layers {layout.n_layers}",
    ]
    words += [f"--mtp-num-layers {layout.n_mtp}"] * (layout.n_mtp > 0)
    return " ".join([*words, f"--pipeline-model-parallel-layout '{layout}'"])


def _candidate_flags(layout: Layout) -> list[Flags]:
    """Return flags without a layout string that may make this layout, the shortest first."""
    plain = (layout.n_layers, layout.n_devices, layout.n_chunks)
    sums = [sum(layout.layers[device :: layout.n_devices]) for device in range(layout.n_devices)]
    found = [Flags(*plain, mtp=layout.n_mtp)]
    for embedding, loss in ((True, False), (False, True), (True, True)):
        found.append(
            Flags(*plain, account_embedding=embedding, account_loss=loss, mtp=layout.n_mtp)
        )
    for first, last in ((sums[0], None), (None, sums[-1]), (sums[0], sums[-1])):
        found.append(Flags(*plain, first=first, last=last, mtp=layout.n_mtp))
    return found
