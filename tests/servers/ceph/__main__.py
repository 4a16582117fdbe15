"""The command: see the package."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from shlex import quote

from tests.servers.ceph import CephFailed, NotInstallable, install, start, stop, unwind_on_signals

USAGE = "usage: python -m tests.servers.ceph up [DIRECTORY] | down DIRECTORY\n"


def main(arguments: list[str]) -> int:
    """Do what is asked; returns the exit code."""
    try:
        match arguments:
            case ["up"]:
                up(Path(tempfile.mkdtemp(prefix="accel-ceph-")))
            case ["up", directory]:
                up(Path(directory))
            case ["down", directory]:
                stop(Path(directory))
            case _:
                sys.stderr.write(USAGE)
                return 2
    except (CephFailed, NotInstallable, FileExistsError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def up(directory: Path) -> None:
    """Start a cluster that stays, and print how to use and how to stop it, as a shell understands it."""
    install()
    gateway = start(directory)
    lines = [f"export {name}={value}" for name, value in gateway.environment().items()]
    sys.stdout.write(
        "\n".join([*lines, f"# to stop it: python -m tests.servers.ceph down {quote(str(directory))}", ""])
    )


if __name__ == "__main__":
    unwind_on_signals()
    sys.exit(main(sys.argv[1:]))
