"""A small profile by hand, and its parts."""

from ppsim.inputs.profile.profile import Fit, Message, OpTime, Profile, Provenance, Workload

MADE = Provenance(
    "Linux", "some cpu", 2, 1, 0.5, "cpu", "3000 MHz", "2.13", "3.11", "0.1", "2026-01-01", "ppsim"
)
MODEL = Workload(
    hidden=64, heads=4, sequence=16, microbatch_size=2, layers=2, dtype="float32", vocab=100
)


def op(kind: str, ms: float, part: str = "layers", layers: int = 2, **more: object) -> OpTime:
    return OpTime(part, kind, layers, ms, ms, ms, 5, **more)  # type: ignore[arg-type]


def message(size: int, ms: float, link: str = "same-host", pattern: str = "early") -> Message:
    return Message(link, pattern, size, ms, ms, ms, 5)


PROFILE = Profile(
    MADE,
    MODEL,
    (
        op("F", 10),
        op("B", 20),
        op("I", 11),
        op("W", 12),
        op("F", 3, "head", 0),
        op("B", 5, "head", 0),
    ),
    (message(1024, 0.1), message(1 << 20, 1.0)),
    (Fit("same-host", "early", "all", "median", 1024, 1 << 20, 0.1, 1e-6, 0.0, 0.0),),
)
