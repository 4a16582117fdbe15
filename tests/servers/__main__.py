"""Runs the tests that take a real S3 server: what `make test-s3` does.

    python -m tests.servers [pytest arguments]   run them
    python -m tests.servers --check              only tell which server that would be, or why there is none

The server is the one that the environment names (see `tests.servers.fixtures`). Where it names none, it is a Ceph
RADOS Gateway, which is installed first where it is missing and may be installed, and lasts as long as the tests.

Exit codes are those of pytest; without a run:

    | code | meaning                                                                       |
    |------|-------------------------------------------------------------------------------|
    | 0    | `--check`: there is a server, or one can be installed                         |
    | 1    | installing or starting Ceph failed                                            |
    | 2    | the environment names a server, but no credentials                            |
    | 77   | no server is named, and Ceph is neither installed here nor may it be installed |
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from tests.servers.ceph import CephFailed, NotInstallable, install, obstacle, running, unwind_on_signals
from tests.servers.fixtures import MARKER, VARIABLES, is_server_named, unset_variables

EXIT_FAILED = 1
EXIT_NO_CREDENTIALS = 2
EXIT_NO_SERVER = 77  # what test runners of many kinds take for "could not be run here"

_HOW_TO_GO_ON = f"Or set {', '.join(VARIABLES)} to use another server"


def main(arguments: list[str]) -> int:
    """Run the tests, or tell whether they can run; returns the exit code."""
    status, text = server(os.environ)
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    if status or arguments == ["--check"]:
        return status
    command = [sys.executable, "-m", "pytest", "-m", MARKER, *arguments, "tests"]
    if is_server_named(os.environ):
        os.execv(sys.executable, command)  # noqa: S606 - our own words; an interrupt is pytest's to tidy up after
    try:
        install()
        with running() as gateway:
            return subprocess.run(command, env=os.environ | gateway.environment(), check=False).returncode  # noqa: S603 - our own words
    except (CephFailed, NotInstallable) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILED


def server(environment: Mapping[str, str]) -> tuple[int, str]:
    """Which server the tests get: the exit code where they get none, else 0, and a sentence for a person."""
    if is_server_named(environment):
        if unset := unset_variables(environment):
            return EXIT_NO_CREDENTIALS, f"{VARIABLES[0]} is set; {' and '.join(unset)} must be set, too"
        return 0, f"S3 server: {environment[VARIABLES[0]]}"
    if reason := obstacle():
        return EXIT_NO_SERVER, f"No S3 server to test with. {reason}. {_HOW_TO_GO_ON}."
    return 0, "S3 server: a Ceph RADOS Gateway of our own"


if __name__ == "__main__":
    unwind_on_signals()
    sys.exit(main(sys.argv[1:]))
