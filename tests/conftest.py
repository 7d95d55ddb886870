"""Shared fixtures and hypothesis profiles."""

import signal

import pytest
from hypothesis import settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile("ppsim", deadline=None)
settings.load_profile("ppsim")

# A job that a script started in the background ignores Ctrl-C, and so would every process that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def one_thread():
    """Compute as a rank does, with one thread; more only get in each other's way."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
