"""The layout: the layers of each stage in model order, and Megatron's rules for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ppsim.base.text import shorten
from ppsim.errors import InputError
from ppsim.workload.layout.text import LETTERS, MOST_LETTERS, format_content, parse_content

EMBEDDING, LAYER, MTP, LOSS = tuple(LETTERS)
Content = tuple[str, ...]
COUNTED = {LAYER: ("transformer layers (t)", "layer-count"), MTP: ("MTP layers (m)", "mtp-count")}
MOST_STAGES = 1_000  # largest number of stages for which a hint is searched
SHOWN = 200  # characters of a layout in a message


@dataclass(frozen=True)
class Rule:
    """One constraint of layouts.

    Attributes:
        name: its name in messages.
        text: the constraint as a sentence.
        holds: tells whether the content of stages on a number of devices satisfies it.
        repair: returns similar content that satisfies it.
    """

    name: str
    text: str
    holds: Callable[[Content, int], bool]
    repair: Callable[[Content, int], Content]


@dataclass(frozen=True)
class Layout:
    """The layers of each stage; :func:`read_layout` reads a layout from text.

    A layout string lists the stages in model order, whatever the placement: Megatron puts stage i
    on device i mod P (all first chunks, then all second chunks), a V placement puts stages on the
    devices in order and then in reverse.

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
        """Number of transformer layers, without MTP layers."""
        return sum(self.layers)

    @property
    def n_mtp(self) -> int:
        """Number of MTP layers."""
        return sum(stage.count(MTP) for stage in self.content)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """Transformer layers of each stage."""
        return tuple(stage.count(LAYER) for stage in self.content)

    @property
    def empty(self) -> list[int]:
        """Stages without any layer, embedding or loss."""
        return [stage for stage, letters in enumerate(self.content) if not letters]


def read_layout(
    text: str, devices: int | None = None, layers: int | None = None, mtp: int | None = None
) -> Layout:
    """Read a layout string.

    Args:
        text: the string, such as ``Et*3|(tt|)*29,m|L``.
        devices: pipeline devices, P; None: one for each stage.
        layers: transformer layers of the model, if known.
        mtp: MTP layers of the model, if known.

    Raises:
        InputError: the text is not a layout, or Megatron refuses it; the message names the rule.
    """
    content = parse_content(text)
    devices = len(content) if devices is None else devices
    counts = {letter: count for letter, count in ((LAYER, layers), (MTP, mtp)) if count is not None}
    _refuse_broken(content, devices, counts)
    for letter, wanted in counts.items():
        count = _count(content, letter)
        if count != wanted:
            noun, rule = COUNTED[letter]
            shown = shorten(format_content(content), SHOWN)
            raise InputError(
                f"layout '{shown}' has {count} {noun}, and the model has {wanted} (rule {rule})",
                _suggest(content, devices, counts),
            )
    return Layout(content, devices)


def build_layout(layers: list[int], devices: int, mtp: int = 0) -> Layout:
    """Return the layout with these transformer layers per stage.

    The embedding is on the first stage; MTP layers and the loss are on the last.

    Raises:
        InputError: a number is negative, the layers are too many, or the stages do not divide over
            the devices.
    """
    if not layers or min(layers) < 0 or mtp < 0:
        raise InputError(
            "layers per stage must be 0 or more, with one number for each stage", "e.g. 3,4,4,3"
        )
    if sum(layers) + mtp > MOST_LETTERS:
        raise InputError(
            f"{sum(layers) + mtp:,} layers are too many", f"{MOST_LETTERS:,} layers at most"
        )
    content = [LAYER * count for count in layers]
    content[0] = EMBEDDING + content[0]
    content[-1] += MTP * mtp + LOSS
    return Layout(tuple(content), devices)


def nearest_layout(text: str, devices: int, stages: int) -> str:
    """Return a hint with the nearest layout of that many stages, or '' if none was found."""
    content = parse_content(text)
    return (
        ""
        if max(len(content), stages) > MOST_STAGES
        else _suggest(_restack(content, stages), devices, {})
    )


def _count(content: Content, letter: str) -> int:
    return sum(stage.count(letter) for stage in content)


def _refuse_broken(content: Content, devices: int, counts: Mapping[str, int]) -> None:
    """Refuse content that breaks a rule (InputError); the hint satisfies all rules and counts.

    ``counts`` are the numbers of letters that the hint must have.
    """
    for rule in RULES:
        if not rule.holds(content, devices):
            shown = shorten(format_content(content), SHOWN)
            hint = _suggest(content, devices, counts)
            raise InputError(f"layout '{shown}' is refused: {rule.text} (rule {rule.name})", hint)


def _suggest(content: Content, devices: int, counts: Mapping[str, int]) -> str:
    """Return a hint with the nearest layout of all rules and counts, or '' if none was found."""
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
    """Return the content with ``wanted`` of a letter in all.

    It is removed from the stages that have most of it, or added to those that have fewest.
    """
    stages = list(content)
    if not 0 <= wanted <= MOST_STAGES:
        return content
    while _count(tuple(stages), letter) > wanted:
        most = max(range(len(stages)), key=lambda s: (stages[s].count(letter), s))
        stages[most] = stages[most].replace(letter, "", 1)
    while (count := _count(tuple(stages), letter)) < wanted:
        with_letter = [s for s in range(len(stages)) if letter in stages[s]]
        least = (
            min(with_letter or range(len(stages)), key=lambda s: (stages[s].count(letter), s))
            if letter == LAYER
            else len(stages) - 1
        )
        at = (
            len(stages[least]) - (LOSS in stages[least])
            if letter == MTP
            else stages[least].find(EMBEDDING) + 1
        )
        more = wanted - count if letter == MTP else 1
        stages[least] = stages[least][:at] + letter * more + stages[least][at:]
    return tuple(stages)


def _divides(content: Content, devices: int) -> bool:
    return devices >= 1 and len(content) % devices == 0


def _round_stages(content: Content, devices: int) -> Content:
    """Return the content on the nearest number of stages that divides over the devices."""
    more = -len(content) % devices
    fewer = devices - more if len(content) > devices else devices
    return _restack(content, len(content) + more if more <= fewer else len(content) - fewer)


def _restack(content: Content, stages: int) -> Content:
    """Return the content on a number of stages.

    The largest stages are halved, or the smallest neighbours joined.
    """
    result = list(content)
    while len(result) < stages:
        largest = max(range(len(result)), key=lambda s: len(result[s]))
        half = (len(result[largest]) + 1) // 2
        result[largest : largest + 1] = [result[largest][:half], result[largest][half:]]
    while len(result) > stages:
        first = min(range(len(result) - 1), key=lambda s: len(result[s]) + len(result[s + 1]))
        result[first : first + 2] = [result[first] + result[first + 1]]
    return tuple(result)


def _one_embedding(content: Content, devices: int) -> Content:
    stages = [stage.replace(EMBEDDING, "") for stage in content]
    return (EMBEDDING + stages[0], *stages[1:])


def _loss_at_end(content: Content, devices: int) -> Content:
    """Return the content with one loss, at the end of the last stage."""
    stages = [stage.replace(LOSS, "") for stage in content]
    return (*stages[:-1], stages[-1] + LOSS)


def _has_right_losses(content: Content, devices: int) -> bool:
    return _count(content, LOSS) in (1, 1 + _count(content, MTP))


def _divide_losses(content: Content, devices: int) -> Content:
    """Return the content with 1 + MTP losses, divided evenly over the stages that have one.

    There is one loss in all if a single stage, or more than 1 + MTP stages, had one.
    """
    with_loss = [s for s, stage in enumerate(content) if LOSS in stage]
    losses = 1 + _count(content, MTP)
    if len(with_loss) < 2 or len(with_loss) > losses:
        return _loss_at_end(content, devices)
    stages = list(content)
    for i, s in enumerate(with_loss):
        share = losses * (i + 1) // len(with_loss) - losses * i // len(with_loss)
        stages[s] = stages[s].replace(LOSS, "") + LOSS * share
    return tuple(stages)


def _mtp_after_layers(content: Content, devices: int) -> bool:
    letters = "".join(content)
    return MTP not in letters or LAYER not in letters[letters.index(MTP) :]


def _mtp_in_last_chunk(content: Content, devices: int) -> bool:
    return not any(MTP in stage for stage in content[: len(content) - devices])


def _mtp_before_loss(content: Content, devices: int) -> Content:
    """Return the content with all MTP layers on the last stage, before its loss."""
    stages, mtp = [stage.replace(MTP, "") for stage in content], _count(content, MTP)
    at = len(stages[-1].rstrip(LOSS))
    return (*stages[:-1], stages[-1][:at] + MTP * mtp + stages[-1][at:])


# In the order of Megatron's checks: PipelineParallelLayerLayout, then its validate_layer_layout.
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
        _has_right_losses,
        _divide_losses,
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
