"""Environments with the wheel, and nothing else that could be imported.

`linked` has symbolic links to the packages that run the tests: those that the metadata of the wheel ask for, and of
these packages' own. So a dependency that is not declared cannot be imported, as if pip had installed it, and nothing is
downloaded or copied. `installed` is what a user does, with an extra.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = "accel-streams"
INSTALLERS = ("pip", "setuptools", "wheel")
SECONDS_MAX = 1800
NO_JAVA = "/var/empty"
"""A PATH without programs."""


class CommandFailed(Exception):
    """A command that had to work ended with an error."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the wheel is installed.

    Args:
        folder: of the virtual environment.
    """

    folder: Path

    @property
    def site(self) -> Path:
        [found] = (self.folder / "lib").glob("python*/site-packages")
        return found

    def run(self, *command: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; nothing of the checkout can be imported.

        Args:
            command: its name, and arguments.
            variables: of the process, beside a PATH without programs.
        """
        settings = {"PYTHONSAFEPATH": "1", "PATH": NO_JAVA, **variables}
        program, *arguments = map(str, command)
        return run(self.folder / "bin" / program, *arguments, folder=self.folder, environment=settings)

    def size_mb(self) -> float:
        """Megabytes of its site-packages, without pip and byte code."""
        files = (each for each in self.site.rglob("*") if each.is_file() and not each.is_symlink())
        counted = (each for each in files if each.suffix != ".pyc" and not self._is_installers(each))
        return sum(each.stat().st_size for each in counted) / 1e6

    def distributions(self) -> set[str]:
        """The projects that are installed, without pip."""
        names = (each.name.partition("-")[0] for each in self.site.glob("*.dist-info"))
        return {name for name in names if name not in INSTALLERS}

    def _is_installers(self, file: Path) -> bool:
        return file.relative_to(self.site).parts[0].partition("-")[0] in INSTALLERS


def run(*command: object, folder: Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    words = [str(each) for each in command]
    return subprocess.run(  # noqa: S603 - our own words
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )


def run_well(*command: object, folder: Path) -> str:
    """A command that has to work; gives what it printed.

    Raises:
        CommandFailed: it ended with an error.
    """
    done = run(*command, folder=folder)
    if done.returncode:
        raise CommandFailed(f"expected exit code 0 of {command}, found {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def built(folder: Path) -> Path:
    """The project's wheel, built from the sources into a folder."""
    run_well(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=ROOT)
    [found] = folder.glob("*.whl")
    return found


def installed(wheel: Path, extra: str, folder: Path) -> Environment:
    """The wheel with an extra, as pip installs it: takes what a package index has, and up to minutes.

    Args:
        wheel: the file.
        extra: one, several with commas between, or "" for the base.
        folder: where; is made.
    """
    venv.create(folder, with_pip=True)
    wanted = f"{wheel}[{extra}]" if extra else wheel
    python = folder / "bin" / "python"
    run_well(
        python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", wanted, folder=folder
    )
    return Environment(folder)


def linked(wheel: Path, folder: Path) -> Environment:
    """The wheel with the base, linked. Takes a second."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run_well(*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel, folder=folder)
    environment = Environment(folder)
    _link(_needed(environment.site), environment.site)
    return environment


def _needed(site: Path) -> set[str]:
    """The projects that the wheel asks for in these site-packages, and those that they ask for in turn."""
    [ours] = metadata.distributions(name=PROJECT, path=[str(site)])
    found: set[str] = set()
    waiting = deque([Requirement(PROJECT)])
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.popleft()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        found.add(name)
        texts = (ours if name == PROJECT else metadata.distribution(name)).requires or ()
        waiting.extend(_asked_for(texts, requirement.extras))
    return found - {PROJECT}


def _asked_for(texts: Iterable[str], extras: set[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, texts):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _link(projects: set[str], folder: Path) -> None:
    """Link what the projects have put at the top of the site-packages into a folder."""
    for name in projects:
        distribution = metadata.distribution(name)
        tops = {each.parts[0] for each in distribution.files or () if each.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))).resolve())
