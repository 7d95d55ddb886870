"""Training software and its techniques, from the files of ``library/software``."""

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
USUAL = "megatron-core"  # assumed if no software is named
# Assumed for software that is not in the library; it hides no communication. Held-out software that
# is treated as unknown (without NVIDIA's) has an error of 12 % with it, and of 21 % with USUAL.
UNKNOWN = "megatron-lm"


@dataclass(frozen=True)
class Techniques:
    """Techniques of a run, by the fields of ``Parallel``; None means not stated.

    Three fields have other names here.

    Attributes:
        overlap_a2a: ``overlap_ep``.
        gradient_precision: ``gradient_bytes``, as bf16, fp16 or fp32.
        moment_precision: ``moment_bytes``, as bf16, fp16 or fp32.
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
    gather_gb_per_s: float | None = None


NAMES = {
    "overlap_a2a": "overlap_ep",
    "gradient_precision": "gradient_bytes",
    "moment_precision": "moment_bytes",
}


def apply(parallel: Parallel, techniques: dict[str, Any]) -> Parallel:
    """Return the settings of a run changed by techniques; None leaves a technique unchanged."""
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
    """Techniques with the conditions under which they apply; a later rule overrides earlier ones.

    Attributes:
        since: first release for which it applies.
        named: words in the name of a version, such as sc21; it applies only to these versions.
        before: year and month, such as 2302; it applies only to runs from earlier sources.
        precisions: training precisions for which it applies; empty for all.
        hosts: hosts for which it applies, x86 or grace; empty for both.
        families: families of chips for which it applies; empty for all.
        schedules: schedules of the pipeline for which it applies; empty for all.
        models: properties that a model must have: gated (an MLP with a gate), stateless (no layer
            with a state).
        source: the source of the rule.
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
    """A training framework; empty fields are inherited from the software that it is built on.

    Attributes:
        name: its name on the command line.
        source: the source of its file's statements.
        words: its names in tables of runs, in lower case.
        on: the software that it is built on, whose rules apply first.
        schedules: schedules of the registry that it runs.
        rank_orders: orders in which it can number ranks.
        flags: name of its launcher in ``plans/launch``.
        groups: groups of ranks that it supports in addition to replicas, among tp, cp, ep and pp.
        zero_stages: stages of ZeRO that it supports.
        undivided: kinds of layers that it runs with tensor parallelism 1 only; None inherits them.
        rule: its techniques, with conditions.
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
    undivided: tuple[str, ...] | None = None
    rule: tuple[Rule, ...] = field(default_factory=tuple)

    @property
    def foundations(self) -> tuple[Software, ...]:
        """The software that it is built on, the lowest first, then itself.

        Raises:
            InputError: ``on`` is not in the library, or the software is built on itself.
        """
        found: tuple[Software, ...] = (self,)
        while on := found[0].on:
            under = softwares().get(on)
            if under is None or under in found:
                raise InputError(
                    f"{self.name} is built on {quote(on)}, which is not other software of the "
                    f"library"
                )
            found = (under, *found)
        return found

    @property
    def runs(self) -> tuple[str, ...]:
        """The schedules that it runs."""
        return self._inherited("schedules", ())

    @property
    def launched_by(self) -> str:
        """The name of its launcher, such as megatron, or ''."""
        return self._inherited("flags", "")

    @property
    def numbers_ranks(self) -> tuple[str, ...]:
        """The orders in which it can number ranks."""
        return self._inherited("rank_orders", ())

    @property
    def divides(self) -> tuple[str, ...]:
        """The groups of ranks that it supports, among tp, cp, ep and pp."""
        return self._inherited("groups", ("tp", "cp", "ep", "pp"))

    @property
    def shards(self) -> tuple[int, ...]:
        """The stages of ZeRO that it supports."""
        return self._inherited("zero_stages", (0, 1, 2, 3))

    def undivided_layers(self, model: Model) -> tuple[str, ...]:
        """Return the kinds of a model's layers that it runs on one tensor-parallel rank alone."""
        stated = (found.undivided for found in reversed(self.foundations))
        undivided = next((kinds for kinds in stated if kinds is not None), ())
        return tuple(kind for kind in undivided if kind in model.mixers)

    def _inherited(self, name: str, default: Any) -> Any:
        return next(
            (value for found in reversed(self.foundations) if (value := getattr(found, name))),
            default,
        )


@dataclass(frozen=True)
class Version:
    """A version of a software.

    Attributes:
        software: the software.
        release: numbers of the release, such as (26, 6); () takes the newest.
        named: the version as a user or a table writes it, in lower case.
        date: year and month of the run's source, such as 2205, or ''.
        assumed: whether the run's software is not in the library and this one is assumed instead.
    """

    software: Software
    release: tuple[int, ...] = ()
    named: str = ""
    date: str = ""
    assumed: bool = False

    @property
    def assumed_release(self) -> str:
        """A note on the release that is assumed, or '' if a rule covers the user's release."""
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
            f"{newest}, the newest release in the library"
            if newest
            else "any: no rule tells releases apart"
        )
        return f"{name} {given} is taken as {known}"

    def techniques(
        self, gpu: Gpu | None, precision: str = "", model: Model | None = None, schedule: str = ""
    ) -> dict[str, Any]:
        """Return the version's techniques by name, without those that no rule states.

        They are of a run on a GPU, in a precision, with a model and a schedule.
        """
        found: dict[str, Any] = {}
        conditions = {
            "hosts": gpu.host if gpu else "",
            "families": gpu.family if gpu else "",
            "precisions": precision,
            "schedules": schedule,
        }
        properties = {}
        if model:
            is_stateless = not set(STATES) & set(model.mixers)
            properties = {"gated": model.gated, "stateless": is_stateless}
        for software in self.software.foundations:
            for rule in software.rule:
                fits = all(
                    value in (getattr(rule, name) or (value,)) for name, value in conditions.items()
                )
                fits = fits and all(properties.get(name, True) for name in rule.models)
                if fits and self._matches_rule(rule, software is self.software):
                    found |= {
                        f.name: value
                        for f in fields(Techniques)
                        if (value := getattr(rule, f.name)) is not None
                    }
        return found

    def by_schedule(
        self, gpu: Gpu | None, precision: str, model: Model | None, stated: Collection[str]
    ) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
        """Return the version's exceptions for schedules, as ``Parallel.by_schedule``.

        ``stated`` has the names of techniques that the user or the run states; these apply to all
        schedules.
        """
        usual = self.techniques(gpu, precision, model)
        schedules = {
            name
            for software in self.software.foundations
            for rule in software.rule
            for name in rule.schedules
        }
        found = []
        for schedule in sorted(schedules):
            techniques = self.techniques(gpu, precision, model, schedule)
            exceptions = {
                name: value
                for name, value in techniques.items()
                if usual.get(name) != value and name not in stated
            }
            changes = changes_of(exceptions)
            found += [(schedule, tuple(sorted(changes.items())))] if changes else []
        return tuple(found)

    def _matches_rule(self, rule: Rule, of_this_software: bool) -> bool:
        """Return whether the version meets a rule's words, date and release.

        A release is compared only for rules of this software, not of those that it is built on.
        """
        if rule.named or rule.before:
            return any(word in self.named for word in rule.named) or bool(
                rule.before > self.date > ""
            )
        is_compared = of_this_software and rule.since and self.release
        return not is_compared or self.release >= numbers(rule.since)


@lru_cache(maxsize=1)
def softwares() -> dict[str, Software]:
    """Return the software of the library, by name."""
    paths = toml.list_installed(LIBRARY / "software")
    return {name: toml.read(str(path), Software, SCHEMA) for name, path in paths.items()}


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a release, such as 26.04.01; () if the text does not begin with one."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(map(int, found[1].split("."))) if found else ()


def read_software(spec: str) -> Version:
    """Return the version that a user names: ``megatron-bridge`` or ``megatron-bridge@26.06``.

    Raises:
        InputError: the software is not in the library, or its file has no such version.
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
        raise InputError(f"no version {quote(version)} of {name}", f"a release, e.g. {name}@1.2")
    return Version(known[name], numbers(version), version)


def software_of(framework: str, release: str, source: str = "") -> Version:
    """Return the version of software that a table names.

    Of several known words, the one of the software built on most others counts, then the longest.
    A text without a known word is assumed to be ``UNKNOWN``, an empty text ``USUAL``.

    Args:
        framework: the table's words for the software.
        release: the table's release, or ''; numbers after the software's word count too.
        source: the source of the run; the number of an arXiv paper dates it.
    """
    text = framework.lower()
    found = [
        (len(software.foundations), len(word), software, word)
        for software in softwares().values()
        for word in software.words
        if word in text
    ]
    if not found:
        is_named = bool(text.strip())
        assumed = softwares()[UNKNOWN if is_named else USUAL]
        return Version(assumed, numbers(release), text, _date(source), is_named)
    *_, software, word = max(found, key=lambda match: match[:2])
    after = text.partition(word)[2]
    return Version(software, numbers(release) or numbers(after.strip(" (")), text, _date(source))


def _date(source: str) -> str:
    """Return the year and month of an arXiv paper, such as 2205, or ''."""
    found = re.search(r"arxiv\D{0,5}(\d{4})\.\d{4,5}", source.lower())
    return found[1] if found else ""
