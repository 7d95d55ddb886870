"""Training software: how it fuses, overlaps, launches and dispatches, from a file each in
``library/software``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from ppsim.base import toml
from ppsim.base.text import guess_of, quote
from ppsim.errors import InputError
from ppsim.workload.hardware.hardware import LIBRARY, Gpu
from ppsim.workload.model.model import STATES, Model
from ppsim.workload.model.parallel import RANK_ORDERS, Parallel

SCHEMA = "ppsim.software/1"
PRECISIONS = {"bf16": 2, "fp16": 2, "fp32": 4}  # bytes
USUAL = "megatron-core"  # where nothing names the software
# Where its name is none of the library's. It hides no communication: left-out software whose name
# is taken away, other than NVIDIA's own, is off by 12 % so, and by 21 % as USUAL.
UNKNOWN = "megatron-lm"


@dataclass(frozen=True)
class Techniques:
    """Techniques of a run besides its sizes, each the field of ``Parallel`` of that name; None is
    not stated.

    Attributes:
        overlap_a2a: ``overlap_ep``.
        gradient_precision: ``gradient_bytes``: bf16, fp16 or fp32.
        moment_precision: ``moment_bytes``, in the same words.
    """

    kernels: str | None = None
    flash: bool | None = None
    sequence_parallel: bool | None = None
    cuda_graphs: str | None = None
    fused_experts: bool | None = None
    dispatch: str | None = None
    dispatch_bytes: int | None = None
    expert_load: float | None = None
    overlap_a2a: bool | None = None
    overlap_tp: bool | None = None
    overlap_p2p: bool | None = None
    overlap_dp: bool | None = None
    post_validation: bool | None = None
    gradient_precision: str | None = None
    moment_precision: str | None = None
    narrow_activation: bool | None = None
    narrow_weights: bool | None = None
    early_weights: bool | None = None
    sums_in_products: bool | None = None
    precision: str | None = None
    recompute: str | None = None
    zero: int | None = None
    rank_order: str | None = None
    weight_forwards: int | None = None
    exchange_ms: float | None = None
    split_ms: float | None = None


NAMES = {
    "overlap_a2a": "overlap_ep",
    "gradient_precision": "gradient_bytes",
    "moment_precision": "moment_bytes",
}


def apply(parallel: Parallel, techniques: dict[str, Any]) -> Parallel:
    """Return a run with these techniques; None leaves a technique as it is."""
    changes = changes_of(techniques)
    return replace(parallel, **changes) if changes else parallel


def changes_of(techniques: dict[str, Any]) -> dict[str, Any]:
    """Return techniques as fields of ``Parallel``; None is left out."""
    changes = {
        NAMES.get(name, name): value for name, value in techniques.items() if value is not None
    }
    for name in ("gradient_bytes", "moment_bytes"):
        if name in changes:
            changes[name] = PRECISIONS[changes[name]]
    if "rank_order" in changes:
        changes["rank_order"] = RANK_ORDERS.get(changes["rank_order"], changes["rank_order"])
    return changes


@dataclass(frozen=True)
class Rule(Techniques):
    """A rule that applies from a release on, or to runs with some property; a later rule wins.

    Attributes:
        since: the release from which it holds.
        named: words of a version that it is of alone, such as sc21.
        before: year and month of sources, as 2302, before which it holds.
        precisions: of training for which it holds; empty for all.
        hosts: x86 or grace; empty both.
        families: of chips; empty for all.
        schedules: of the pipeline for which it holds; empty for all.
        models: what a model must have: gated, an MLP with a gate; stateless, no layer that carries
            a state.
        source: where it is from.
    """

    since: str = ""
    named: tuple[str, ...] = ()
    before: str = ""
    precisions: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Software:
    """A training framework.

    Attributes:
        name: as users type it.
        source: where its file's statements are from.
        words: how tables of runs name it, in small letters.
        on: the software that it is built on, and whose rules it has first.
        schedules: of the registry, that it runs; empty where it inherits all from its foundations.
        rank_orders: in which orders it numbers ranks.
        flags: the file in ``plans/launch`` that writes its launch flags.
        groups: kinds of groups of ranks that it has in addition to replicas, of tp, cp, ep and pp.
        zero_stages: of ZeRO that it has.
        rule: its techniques, each with its conditions.
    """

    name: str
    source: str
    words: tuple[str, ...]
    on: str = ""
    schedules: tuple[str, ...] = ()
    rank_orders: tuple[str, ...] = ()
    flags: str = ""
    groups: tuple[str, ...] = ()
    zero_stages: tuple[int, ...] = ()
    rule: tuple[Rule, ...] = field(default_factory=tuple)

    @property
    def foundations(self) -> tuple[Software, ...]:
        """The software that it is built on, from the ground up, and itself.

        Raises:
            InputError: its file names no software of the library, or one that is built on itself.
        """
        found: tuple[Software, ...] = (self,)
        while on := found[0].on:
            under = softwares().get(on)
            if under is None or under in found:
                raise InputError(
                    f"{self.name} is built on {quote(on)}, no other software of the library"
                )
            found = (under, *found)
        return found

    @property
    def runs(self) -> tuple[str, ...]:
        """The schedules that it runs."""
        return self._own_or_inherited("schedules", ())

    @property
    def launched_by(self) -> str:
        """The name of its launcher, such as megatron; empty if there is none."""
        return self._own_or_inherited("flags", "")

    @property
    def numbers_ranks(self) -> tuple[str, ...]:
        """The orders in which it numbers ranks."""
        return self._own_or_inherited("rank_orders", ())

    @property
    def divides(self) -> tuple[str, ...]:
        """The groups of ranks that it has, of tp, cp, ep and pp."""
        return self._own_or_inherited("groups", ("tp", "cp", "ep", "pp"))

    @property
    def shards(self) -> tuple[int, ...]:
        """The stages of ZeRO that it has."""
        return self._own_or_inherited("zero_stages", (0, 1, 2, 3))

    def _own_or_inherited(self, name: str, otherwise: Any) -> Any:
        return next(
            (value for found in reversed(self.foundations) if (value := getattr(found, name))),
            otherwise,
        )


@dataclass(frozen=True)
class Version:
    """Software of one version.

    Attributes:
        software: the software.
        release: its numbers, such as (26, 6); empty takes the newest.
        named: words that name the version otherwise.
        date: year and month of what states the run, as 2205, or empty.
        assumed: whether a run names other software, none of the library, and this is taken in its
            place.
    """

    software: Software
    release: tuple[int, ...] = ()
    named: str = ""
    date: str = ""
    assumed: bool = False

    @property
    def assumed_release(self) -> str:
        """The release assumed where no rule names the user's, in words; empty where one does."""
        rules = [rule for software in self.software.foundations for rule in software.rule]
        newest = max((rule.since for rule in self.software.rule), key=numbers, default="")
        if (
            not self.release
            or self.release <= numbers(newest)
            or any(self.named in rule.named for rule in rules)
        ):
            return ""
        name, given = self.software.name, ".".join(map(str, self.release))
        known = (
            f"{newest}, the newest release that the library knows"
            if newest
            else "any: no rule tells them apart"
        )
        return f"{name} {given} is taken as {known}"

    def techniques(
        self, gpu: Gpu | None, precision: str = "", model: Model | None = None, schedule: str = ""
    ) -> dict[str, Any]:
        """List the techniques of the version on a GPU in a precision with a model and a schedule.

        Techniques by name, those said alone.
        """
        said: dict[str, Any] = {}
        mine = {
            "hosts": gpu.host if gpu else "",
            "families": gpu.family if gpu else "",
            "precisions": precision,
        }
        mine["schedules"] = schedule
        has = (
            {"gated": model.gated, "stateless": not set(STATES) & set(model.mixers)}
            if model
            else {}
        )
        for software in self.software.foundations:
            for rule in software.rule:
                fits = all(
                    value in (getattr(rule, name) or (value,)) for name, value in mine.items()
                )
                fits = fits and all(has.get(name, True) for name in rule.models)
                if fits and self._rule_applies(rule, software is self.software):
                    said |= {
                        f.name: v
                        for f in fields(Techniques)
                        if (v := getattr(rule, f.name)) is not None
                    }
        return said

    def by_schedule(
        self, gpu: Gpu | None, precision: str, model: Model | None, stated: Collection[str]
    ) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
        """List the techniques in which the version treats some schedules differently, as the field
        of ``Parallel`` of this name.

        ``stated``: techniques that the user or the run states, whatever the schedule.
        """
        usual = self.techniques(gpu, precision, model)
        names = {
            name
            for software in self.software.foundations
            for rule in software.rule
            for name in rule.schedules
        }
        found = []
        for schedule in sorted(names):
            said = self.techniques(gpu, precision, model, schedule)
            other = {
                name: value
                for name, value in said.items()
                if usual.get(name) != value and name not in stated
            }
            changes = changes_of(other)
            found += [(schedule, tuple(sorted(changes.items())))] if changes else []
        return tuple(found)

    def _rule_applies(self, rule: Rule, own: bool) -> bool:
        if rule.named or rule.before:
            return any(word in self.named for word in rule.named) or bool(
                rule.before > self.date > ""
            )
        return not (own and rule.since and self.release) or self.release >= numbers(rule.since)


@lru_cache(maxsize=1)
def softwares() -> dict[str, Software]:
    """Read the software of the library, by name."""
    paths = toml.list_installed(LIBRARY / "software")
    return {name: toml.read(str(path), Software, SCHEMA) for name, path in paths.items()}


def numbers(text: str) -> tuple[int, ...]:
    """Read the numbers of a release, such as 26.04.01; empty where the text does not begin with
    one.
    """
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(map(int, found[1].split("."))) if found else ()


def read_software(spec: str) -> Version:
    """Read software as users name it: ``megatron-bridge``, or with a release,
    ``megatron-bridge@26.06``.

    Raises:
        InputError: no such software in the library, or a version that its file does not have.
    """
    name, _, version = spec.lower().strip().partition("@")
    known = softwares()
    if name not in known:
        raise InputError(
            f"no software {quote(spec)} in the library.{guess_of(name, known)}",
            f"one of {', '.join(known)}",
        )
    words = {
        word
        for software in known[name].foundations
        for rule in software.rule
        for word in rule.named
    }
    if version and not numbers(version) and version not in words:
        raise InputError(f"no version {quote(version)} of {name}", f"a release, such as {name}@1.2")
    return Version(known[name], numbers(version), version)


def software_of(framework: str, release: str, source: str = "") -> Version:
    """Find the software that a table's words name, and its version by the release, or by the date
    of an arXiv paper.

    Of several, the one that is built on the others. Where no word is known it is taken as one that
    hides no communication, and where there is none as the usual one.
    """
    text = framework.lower()
    found = [
        (len(s.foundations), len(word), s, word)
        for s in softwares().values()
        for word in s.words
        if word in text
    ]
    if not found:
        is_named = bool(text.strip())
        taken = softwares()[UNKNOWN if is_named else USUAL]
        return Version(taken, numbers(release), text, _date(source), is_named)
    *_, software, word = max(found, key=lambda one: one[:2])
    after = text.partition(word)[2]
    return Version(software, numbers(release) or numbers(after.strip(" (")), text, _date(source))


def _date(source: str) -> str:
    found = re.search(r"arxiv\D{0,5}(\d{4})\.\d{4,5}", source.lower())
    return found[1] if found else ""
