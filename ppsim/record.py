"""Record a training run as a table of ops, one file per process: ``from ppsim.record import
record``.

Around a loop that trains with torch.distributed.pipelining, torchtitan or Megatron-LM nothing else
is needed::

    with record("runs/today"):
        for x, y in batches:
            schedule.step(x, target=y)

Any other loop marks its ops where they run::

    with record("runs/today", device=pipeline_rank):
        ...
        with op("F", stage, microbatch):
            output = model(x)

Then ``ppsim read runs/today``. Recording changes nothing that is computed. It needs the standard
library alone, and torch only where torch's pipelines or a GPU's clock are recorded.
"""

from ppsim.real.recorder import recorder

record, op = recorder.Recorder, recorder.Op

__all__ = ["op", "record"]
