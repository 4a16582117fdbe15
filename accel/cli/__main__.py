"""The program `accel`, also as `python -m accel.cli`: signals end it before anything else is loaded.

Before it opens a file it opens the standard streams that its parent has closed.
"""

import sys

from accel.cli.ending import Stopped, end_on_signals
from accel.cli.standard_streams import open_standard_streams


def run() -> None:
    """Run the command line of this process."""
    open_standard_streams()
    end_on_signals()
    try:
        from accel.cli.main import main  # noqa: PLC0415 - loads most of Accel's base

        main(prog_name="accel")
    except Stopped as stopped:  # while modules were loaded
        sys.stderr.write(f"error: {stopped}\n")
        sys.exit(stopped.code)


if __name__ == "__main__":
    run()
