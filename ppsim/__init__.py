"""ppsim: simulate and draw pipeline-parallel training schedules."""

__version__ = "0.1.0"
