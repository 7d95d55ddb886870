"""The layout: which layers each stage holds, in model order, and the rules by which Megatron
refuses one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ppsim.base.text import shorten
from ppsim.errors import InputError
from ppsim.workload.layout.text import LETTERS, format_content, parse_content

EMBEDDING, LAYER, MTP, LOSS = tuple(LETTERS)
Content = tuple[str, ...]
COUNTED = {LAYER: ("transformer layers (t)", "layer-count"), MTP: ("MTP layers (m)", "mtp-count")}
MOST_STAGES, SHOWN = 1_000, 200  # for which a hint is searched; characters of a layout in a message


@dataclass(frozen=True)
class Rule:
    """One constraint of layouts.

    Attributes:
        name: how messages call it.
        text: the sentence a user reads.
        holds: whether the content of stages on a number of devices keeps it.
        repair: changes the content so that it does, as little as possible.
    """

    name: str
    text: str
    holds: Callable[[Content, int], bool]
    repair: Callable[[Content, int], Content]


@dataclass(frozen=True)
class Layout:
    """The layers of each stage; read one from text with :func:`read_layout`.

    A layout string lists the stages in model order. Of P devices, Megatron puts the i-th on device
    i mod P (all first chunks, then all second chunks), a V placement on i and then back again: the
    string is the same.

    Attributes:
        content: the letters of each stage in model order: E embedding, t transformer layer, m MTP
            layer, L loss.
        n_devices: pipeline devices, P.
    """

    content: Content
    n_devices: int

    def __post_init__(self) -> None:
        _refuse_broken(self.content, self.n_devices, {})

    def __str__(self) -> str:
        return format_content(self.content)

    @property
    def n_stages(self) -> int:
        """Stages, S."""
        return len(self.content)

    @property
    def n_chunks(self) -> int:
        """Stages per device, V."""
        return len(self.content) // self.n_devices

    @property
    def n_layers(self) -> int:
        """Transformer layers in all, without MTP layers."""
        return sum(self.layers)

    @property
    def n_mtp(self) -> int:
        """MTP layers in all."""
        return sum(stage.count(MTP) for stage in self.content)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """Transformer layers of each stage."""
        return tuple(stage.count(LAYER) for stage in self.content)

    @property
    def empty(self) -> list[int]:
        """Stages that hold nothing."""
        return [stage for stage, held in enumerate(self.content) if not held]


def read_layout(
    text: str, devices: int | None = None, layers: int | None = None, mtp: int | None = None
) -> Layout:
    """Read a layout string; without ``devices`` each stage is on a device of its own.

    Args:
        text: such as ``Et*3|(tt|)*29,m|L``.
        devices: pipeline devices, P.
        layers: transformer layers that the model has, if known.
        mtp: MTP layers that the model has, if known.

    Raises:
        InputError: the text is not a layout, or Megatron refuses it; the message names the rule.
    """
    content = parse_content(text)
    devices = len(content) if devices is None else devices
    counts = {letter: count for letter, count in ((LAYER, layers), (MTP, mtp)) if count is not None}
    _refuse_broken(content, devices, counts)
    for letter, wanted in counts.items():
        held = _count(content, letter)
        if held != wanted:
            what, rule = COUNTED[letter]
            shown = shorten(format_content(content), SHOWN)
            raise InputError(
                f"layout '{shown}' holds {held} {what}, and the model has {wanted} (rule {rule})",
                _suggest(content, devices, counts),
            )
    return Layout(content, devices)


def build_layout(layers: list[int], devices: int, mtp: int = 0) -> Layout:
    """Build the layout with these transformer layers per stage: embedding first, MTP layers and
    loss last.

    Raises:
        InputError: a negative number, or stages that do not divide over the devices.
    """
    if not layers or min(layers) < 0 or mtp < 0:
        raise InputError(
            "layers per stage must be 0 or more, and one number for each stage", "such as 3,4,4,3"
        )
    content = [LAYER * count for count in layers]
    content[0] = EMBEDDING + content[0]
    content[-1] += MTP * mtp + LOSS
    return Layout(tuple(content), devices)


def nearest_layout(text: str, devices: int, stages: int) -> str:
    """Write the layout with that number of stages nearest to a text, as a hint; empty where none
    was found.
    """
    content = parse_content(text)
    return (
        ""
        if max(len(content), stages) > MOST_STAGES
        else _suggest(_restack(content, stages), devices, {})
    )


def _count(content: Content, letter: str) -> int:
    return sum(stage.count(letter) for stage in content)


def _refuse_broken(content: Content, devices: int, counts: Mapping[str, int]) -> None:
    """Refuse content that breaks a rule, with the nearest that keeps all and has the counts of
    letters given.
    """
    for rule in RULES:
        if not rule.holds(content, devices):
            shown, hint = (
                shorten(format_content(content), SHOWN),
                _suggest(content, devices, counts),
            )
            raise InputError(f"layout '{shown}' is refused: {rule.text} (rule {rule.name})", hint)


def _suggest(content: Content, devices: int, counts: Mapping[str, int]) -> str:
    """Write the nearest layout that keeps all rules and counts, as a hint; empty where none was
    found.
    """
    if devices < 1:
        return "--devices 1 or more"
    if max(devices, len(content)) > MOST_STAGES:
        return ""
    for letter, count in counts.items():
        content = _set_count(content, letter, count)
    for _ in range(2):  # a repair may break a rule before it
        for rule in RULES:
            if not rule.holds(content, devices):
                content = rule.repair(content, devices)
    sound = all(rule.holds(content, devices) for rule in RULES)
    counted = all(_count(content, letter) == count for letter, count in counts.items())
    return f"'{format_content(content)}'" if sound and counted else ""


def _set_count(content: Content, letter: str, wanted: int) -> Content:
    """Add the letter to the stages that have fewest of it, or take it from the stages that have
    most.
    """
    stages = list(content)
    if not 0 <= wanted <= MOST_STAGES:
        return content
    while _count(tuple(stages), letter) > wanted:
        most = max(range(len(stages)), key=lambda s: (stages[s].count(letter), s))
        stages[most] = stages[most].replace(letter, "", 1)
    while (held := _count(tuple(stages), letter)) < wanted:
        having = [s for s in range(len(stages)) if letter in stages[s]] or range(len(stages))
        least = (
            min(having, key=lambda s: (stages[s].count(letter), s))
            if letter == LAYER
            else len(stages) - 1
        )
        at = (
            len(stages[least]) - (LOSS in stages[least])
            if letter == MTP
            else stages[least].find(EMBEDDING) + 1
        )
        more = wanted - held if letter == MTP else 1
        stages[least] = stages[least][:at] + letter * more + stages[least][at:]
    return tuple(stages)


def _divides(content: Content, devices: int) -> bool:
    return devices >= 1 and len(content) % devices == 0


def _round_stages(content: Content, devices: int) -> Content:
    """Change the number of stages to the nearest that divides over the devices."""
    more = -len(content) % devices
    fewer = devices - more if len(content) > devices else devices
    return _restack(content, len(content) + more if more <= fewer else len(content) - fewer)


def _restack(content: Content, stages: int) -> Content:
    """Halve the stages with most layers, or join the neighbours with fewest, until there are
    ``stages``.
    """
    held = list(content)
    while len(held) < stages:
        largest = max(range(len(held)), key=lambda s: len(held[s]))
        half = (len(held[largest]) + 1) // 2
        held[largest : largest + 1] = [held[largest][:half], held[largest][half:]]
    while len(held) > stages:
        first = min(range(len(held) - 1), key=lambda s: len(held[s]) + len(held[s + 1]))
        held[first : first + 2] = [held[first] + held[first + 1]]
    return tuple(held)


def _one_embedding(content: Content, devices: int) -> Content:
    stages = [stage.replace(EMBEDDING, "") for stage in content]
    return (EMBEDDING + stages[0], *stages[1:])


def _loss_at_end(content: Content, devices: int) -> Content:
    """Move the losses of stages before the last layer to the last stage, after its layers."""
    stages = [stage.replace(LOSS, "") for stage in content]
    return (*stages[:-1], stages[-1] + LOSS)


def _slots_hold(content: Content, devices: int) -> bool:
    return _count(content, LOSS) in (1, 1 + _count(content, MTP))


def _share_slots(content: Content, devices: int) -> Content:
    """Give the stages with a loss 1 + MTP slots in all, evenly; one slot in all where there are
    more stages.
    """
    where, slots = [s for s, stage in enumerate(content) if LOSS in stage], 1 + _count(content, MTP)
    if len(where) < 2 or len(where) > slots:
        return _loss_at_end(content, devices)
    stages = list(content)
    for i, s in enumerate(where):
        share = slots * (i + 1) // len(where) - slots * i // len(where)
        stages[s] = stages[s].replace(LOSS, "") + LOSS * share
    return tuple(stages)


def _mtp_after_layers(content: Content, devices: int) -> bool:
    letters = "".join(content)
    return MTP not in letters or LAYER not in letters[letters.index(MTP) :]


def _mtp_in_last_chunk(content: Content, devices: int) -> bool:
    return not any(MTP in stage for stage in content[: len(content) - devices])


def _mtp_before_loss(content: Content, devices: int) -> Content:
    """Move all MTP layers to the last stage, before its loss."""
    stages, mtp = [stage.replace(MTP, "") for stage in content], _count(content, MTP)
    at = len(stages[-1].rstrip(LOSS))
    return (*stages[:-1], stages[-1][:at] + MTP * mtp + stages[-1][at:])


# In the order in which Megatron checks: PipelineParallelLayerLayout and its validate_layer_layout.
RULES = (
    Rule("stage-count", "its stages must be a multiple of the devices", _divides, _round_stages),
    Rule(
        "embedding-first",
        "the first layer must be the embedding (E)",
        lambda content, _: "".join(content)[:1] == EMBEDDING,
        _one_embedding,
    ),
    Rule(
        "loss-last",
        "the last layer must be the loss (L)",
        lambda content, _: "".join(content)[-1:] == LOSS,
        _loss_at_end,
    ),
    Rule(
        "one-embedding",
        "there must be exactly one embedding (E)",
        lambda content, _: _count(content, EMBEDDING) == 1,
        _one_embedding,
    ),
    Rule(
        "loss-slots",
        "there must be one loss (L) or, where it is split, one for the model and one for each MTP "
        "layer (m)",
        _slots_hold,
        _share_slots,
    ),
    Rule(
        "mtp-after-layers",
        "MTP layers (m) must come after all layers (t)",
        _mtp_after_layers,
        _mtp_before_loss,
    ),
    Rule(
        "mtp-last-chunk",
        "MTP layers (m) must be in the last chunk of their device",
        _mtp_in_last_chunk,
        _mtp_before_loss,
    ),
)
