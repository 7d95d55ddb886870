"""Megatron's flags for the split of layers: from flags to a layout, and back where they can say
it.
"""

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
        first: ``--decoder-first-pipeline-num-layers``, of all chunks of the first device, or None.
        last: ``--decoder-last-pipeline-num-layers``, of all chunks of the last device, or None.
        account_embedding: ``--account-for-embedding-in-pipeline-split``: the embedding takes the
            place of a layer.
        account_loss: ``--account-for-loss-in-pipeline-split``: the loss takes the place of a layer.
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
    """Split layers as Megatron does with these flags.

    A device's layers are shared evenly by its chunks; all first chunks come before all second
    chunks.

    Raises:
        InputError: flags that Megatron refuses, with the rule's name and numbers that work.
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
            f"these are {flags.devices * flags.chunks:,} stages", f"{MOST_STAGES:,} at most"
        )
    if flags.first is not None or flags.last is not None:
        per_device = _around_middle(flags)
        per_stage = [held // flags.chunks for _ in range(flags.chunks) for held in per_device]
    else:
        per_stage = _even_layers(flags)
    return build_layout(per_stage, flags.devices, flags.mtp)


MOST_STAGES, MOST_SUGGESTED = 1_000_000, 1_000
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"


def _around_middle(flags: Flags) -> list[int]:
    """Layers of each device where the first or the last one states its own."""
    if flags.account_embedding or flags.account_loss:
        raise InputError(
            f"{FIRST} and {LAST} cannot be given with --account-for-...-in-pipeline-split (rule "
            f"one-way-to-split)",
            "one of the two ways, or a layout string",
        )
    ends = [
        (name, held)
        for name, held in ((FIRST, flags.first), (LAST, flags.last))
        if held is not None
    ]
    for name, held in ends:
        if held < 1:
            raise InputError(
                f"{name} must be larger than 0, got {held} (rule end-layers)",
                f"{name} {flags.chunks}",
            )
        if held % flags.chunks:
            raise _not_divided(flags, name, held, flags.chunks, "chunks", "end-chunks")
    middle, left = flags.devices - len(ends), flags.num_layers - sum(held for _, held in ends)
    if middle < 0 or left < 0 or (left and not middle):
        held = sum(held for _, held in ends)
        raise InputError(
            f"{held} of {flags.num_layers} layers are on the ends, with {max(middle, 0)} devices "
            "between them (rule middle-layers)",
            f"--num-layers {held + middle * flags.chunks}"
            if middle >= 0
            else "--devices 2, or one of the two flags",
        )
    if middle and left % middle:
        raise _not_divided(
            flags,
            "the rest of --num-layers",
            left,
            middle,
            "devices between the ends",
            "middle-devices",
        )
    each = left // max(1, middle)  # none where the ends take all, as Megatron has it
    if each % flags.chunks:
        raise _not_divided(
            flags,
            "the layers of a device between the ends",
            each,
            flags.chunks,
            "chunks",
            "middle-chunks",
        )
    first = [] if flags.first is None else [flags.first]
    return [*first, *[each] * middle, *([] if flags.last is None else [flags.last])]


def _even_layers(flags: Flags) -> list[int]:
    """Layers of each stage where all hold as many, the embedding and the loss counted as layers
    where asked for.
    """
    counted, stages = (
        flags.num_layers + flags.account_embedding + flags.account_loss,
        flags.devices * flags.chunks,
    )
    what = "--num-layers" + (
        " with embedding or loss counted" if counted > flags.num_layers else ""
    )
    if counted % flags.devices:
        raise _not_divided(flags, what, counted, flags.devices, "devices", "even-devices")
    if counted % stages:
        raise _not_divided(
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
            "embedding and loss leave no room on the one stage (rule end-room)", "more --num-layers"
        )
    return per_stage


def _not_divided(
    flags: Flags, what: str, number: int, parts: int, of: str, rule: str
) -> InputError:
    below, above = number // parts * parts, -(-number // parts) * parts
    near = f"{above}" if not below else f"{below} or {above}"
    layout = _split_unevenly(flags)
    return InputError(
        f"{what}: {number} does not divide over {parts} {of} (rule {rule})",
        f"{near} there, or the layout '{layout}'"
        if layout
        else f"{near} there, or a layout string",
    )


def _split_unevenly(flags: Flags) -> Layout | None:
    """Split layers as these flags ask but for the remainders, which go to the first stages; None
    where none can.
    """
    P, V = flags.devices, flags.chunks
    held: list[int | None] = [None] * (P * V)
    for device, layers in ((0, flags.first), (P - 1, flags.last)):
        if layers is not None:
            held[device::P] = [layers // V + (chunk < layers % V) for chunk in range(V)]
    free = [stage for stage, layers in enumerate(held) if layers is None]
    left = (
        flags.num_layers
        + flags.account_embedding
        + flags.account_loss
        - sum(n for n in held if n is not None)
    )
    if left < 0 or not free or P * V > MOST_SUGGESTED:
        return None
    each, more = divmod(left, len(free))
    for place, stage in enumerate(free):
        held[stage] = each + (place < more)
    per_stage = [n or 0 for n in held]
    per_stage[0] -= flags.account_embedding
    per_stage[-1] -= flags.account_loss
    return None if min(per_stage) < 0 else build_layout(per_stage, P, flags.mtp)


def flags_of(layout: Layout) -> str:
    """Write the flags that make Megatron split layers this way, with the layout string where no
    others can.
    """
    for flags in _candidates(layout):
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


def _candidates(layout: Layout) -> list[Flags]:
    """The flags that may say it, the shortest first."""
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
