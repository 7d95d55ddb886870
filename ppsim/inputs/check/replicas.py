"""Replicas with different numbers of microbatches: their collectives wait for each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ppsim.inputs.check.faults import Fault

HINT = "pad the others with empty microbatches, or deal the sequences again (ppsim run --deal)"


def replica_faults(counts: Sequence[int], microbatches: int) -> Iterator[Fault]:
    """Yield a fault for each replica with another number of microbatches than the others or the
    schedule.

    A replica with fewer enters the reduction of gradients while another waits in a collective of
    its next microbatch (of FSDP, of experts, or of a loss averaged over replicas): neither comes.

    Args:
        counts: the microbatches of each replica.
        microbatches: of the schedule.
    """
    most = max(counts)
    full = list(counts).index(most)
    for replica, count in enumerate(counts):
        if count == most:
            continue
        waits = (
            f"replica {full} waits in the collectives of microbatch {count} for replica {replica}",
            f"replica {replica} waits in the reduction of gradients for replica {full}",
        )
        said = f"replica {replica} has {count} microbatches, and replica {full} has {most}"
        circle = (f"replica {full}", f"replica {replica}", f"replica {full}")
        yield Fault("replicas", f"{said}: {'; '.join(waits)}", HINT, waits=waits, circle=circle)
    if most != microbatches:
        said = f"the replicas have {most} microbatches, and the schedule has {microbatches}"
        yield Fault("replicas", said, f"a schedule of {most} microbatches")
