"""The program `accel`, also as `python -m accel.cli`: signals end it before anything else is loaded."""

import sys

from accel.cli.ending import Stopped, end_on_signals


def run() -> None:
    """Run the command line of this process."""
    end_on_signals()
    try:
        from accel.cli.main import main  # noqa: PLC0415 - loads most of Accel's base

        main(prog_name="accel")
    except Stopped as stopped:  # while modules were loaded
        sys.stderr.write(f"error: {stopped}\n")
        sys.exit(stopped.code)


if __name__ == "__main__":
    run()
