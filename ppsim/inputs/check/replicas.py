"""Replicas with different numbers of microbatches: their collectives deadlock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ppsim.inputs.check.faults import Fault

HINT = "pad the others with empty microbatches, or deal the sequences again (ppsim run --deal)"


def replica_faults(counts: Sequence[int], microbatches: int) -> Iterator[Fault]:
    """Yield a fault for each replica with fewer microbatches than another, or if the schedule has
    another number.

    A replica with fewer microbatches enters the reduction of gradients while another waits in a
    collective of its next microbatch (of FSDP, of experts, or of a loss averaged over replicas), so
    both wait forever.

    Args:
        counts: the number of microbatches of each replica.
        microbatches: the number of microbatches of the schedule.
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
        counts_text = f"replica {replica} has {count} microbatches, and replica {full} has {most}"
        message = f"{counts_text}: {'; '.join(waits)}"
        cycle = (f"replica {full}", f"replica {replica}", f"replica {full}")
        yield Fault("replicas", message, HINT, waits=waits, circle=cycle)
    if most != microbatches:
        message = f"the replicas have {most} microbatches, and the schedule has {microbatches}"
        yield Fault("replicas", message, f"a schedule of {most} microbatches")
