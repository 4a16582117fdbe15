"""What a newcomer meets: the README, then the tutorial, word for word, in a fresh clone.

    python -m tests.docs.transcript [--tests]

The clone is of the commit that is checked out. Its environment has a home of its own, no settings of AWS and no
JAVA_HOME. `--tests` runs `make test` of the README as well, which takes minutes. Prints each command with its seconds
and its last lines; the exit code is 1 at the first command that fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.docs.pages import ROOT, Block, blocks, page_named

SHOWN_LINES = 6
COMMAND_SECONDS_MAX = 3600
KEPT_VARIABLES = ("PATH", "LANG", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "SSL_CERT_FILE", "TERM")
TESTS = "make test"


class Newcomer:
    """A shell in a fresh clone.

    Args:
        home: an empty folder.
        with_tests: whether the tests of the README are run.
    """

    def __init__(self, home: Path, *, with_tests: bool) -> None:
        self._clone, self._with_tests = home / "accel", with_tests
        self._environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        self._environment |= {"HOME": str(home), "PATH": f"{self._clone / '.venv/bin'}:{os.environ['PATH']}"}
        self._run(f"git clone --quiet {ROOT} {self._clone}", ["git", "clone", "-q", str(ROOT), str(self._clone)], home)

    def first_page(self) -> None:
        """The commands at the head of the README, and all its programs; other commands name buckets of one's own."""
        page = ROOT / "README.md"
        sys.stdout.write(f"\n## {page.relative_to(ROOT)}\n")
        [first, *_] = blocks(page, "sh")
        self._shell(first)
        programs = "\n".join(block.text for block in blocks(page, "python"))
        self._run("the programs of the page, one after another", [sys.executable, "-c", programs], self._clone)

    def follow(self, page: Path, *languages: str) -> None:
        """Do what the blocks of a page say; stores of the page are those of the clone's own machine."""
        sys.stdout.write(f"\n## {page.relative_to(ROOT)}\n")
        for block in blocks(page, *languages):
            if block.language == "python":
                self._run(f"the program in line {block.line}", [sys.executable, "-c", block.text], self._clone)
            else:
                self._shell(block)

    def _shell(self, block: Block) -> None:
        for line in block.text.splitlines():
            command = line.partition("  #")[0].strip()
            if command.startswith("export "):
                variable, _, value = command.removeprefix("export ").partition("=")
                self._environment[variable] = value
            if not command or command.startswith("export ") or (command == TESTS and not self._with_tests):
                continue
            self._run(command, ["bash", "-c", command], self._clone)

    def _run(self, shown: str, command: list[str], folder: Path) -> None:
        if command[0] == sys.executable:
            command = [str(self._clone / ".venv/bin/python"), *command[1:]]
        started = time.monotonic()  # noqa: TID251 - how long a newcomer waits
        done = subprocess.run(  # noqa: S603 - the words of our own pages
            command,
            cwd=folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        seconds = time.monotonic() - started  # noqa: TID251 - likewise
        last = "".join(f"    {line}\n" for line in done.stdout.splitlines()[-SHOWN_LINES:])
        sys.stdout.write(f"\n$ {shown}    ({seconds:.1f} s)\n{last}")
        sys.stdout.flush()
        if done.returncode:
            raise SystemExit(1)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser("python -m tests.docs.transcript", description=__doc__.partition("\n")[0])
    parser.add_argument("--tests", action="store_true", help="run `make test`, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        newcomer = Newcomer(Path(home), with_tests=arguments.tests)
        newcomer.first_page()
        newcomer.follow(page_named("tutorial"), "sh", "python")


if __name__ == "__main__":
    main()
