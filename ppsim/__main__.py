"""Start the command line, as ``python -m ppsim`` and as the installed script."""

import os
import signal


def main() -> None:
    """Run the command line; Ctrl-C while its modules load ends the process and nothing else: there
    is nothing yet.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # small solves: threads would spin more than they save
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Processes that this one starts import nothing of the folder that one stands in.
    os.environ["PYTHONSAFEPATH"] = "1"
    from ppsim.cli import main as run

    run()


if __name__ == "__main__":
    main()
