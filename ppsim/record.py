"""Record a training run as a table of ops, one file per process: ``from ppsim.record import
record``.

A training loop with torch.distributed.pipelining, torchtitan or Megatron-LM needs no other
change::

    with record("runs/today"):
        for x, y in batches:
            schedule.step(x, target=y)

In other loops, mark each op::

    with record("runs/today", device=pipeline_rank):
        ...
        with op("F", stage, microbatch):
            output = model(x)

Then run ``ppsim read runs/today``. Recording does not change any result of the program. It requires
only the standard library, and torch if torch's pipelines or the clock of a GPU are recorded.
"""

from ppsim.real.recorder import recorder

record, op = recorder.Recorder, recorder.Op

__all__ = ["op", "record"]
