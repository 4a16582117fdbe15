"""How large the wheel is with each extra, and whether it works alone: `python -m benchmarks.extras [EXTRA ...]`.

Each extra is installed, as a user would, with the built wheel into a virtual environment of its own. Printed are the
megabytes of its site-packages without pip (and without byte code, which depends on what was run), how many packages
there are, and what a command that needs another extra says. Takes minutes, and downloads all of it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("", "demo", "server", "metrics", "obstore", "arrow", "spark", "jvm", "spark,jvm")
_NO_BASE = ("pip", "setuptools")


@dataclass(frozen=True, slots=True)
class Installed:
    """What came of one extra."""

    extra: str
    size_mb: float
    packages: int
    imports: bool
    demo: str


def run(*command: object, folder: str | Path) -> subprocess.CompletedProcess[str]:
    """A command outside the checkout, so that only what is installed can be imported."""
    return subprocess.run(  # noqa: S603 - our own
        [str(each) for each in command], cwd=folder, capture_output=True, text=True, check=False
    )


def built_wheel(folder: Path) -> Path:
    """The project's wheel."""
    done = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT, folder=folder)
    if done.returncode:
        raise RuntimeError(done.stderr)
    [wheel] = folder.glob("*.whl")
    return wheel


def install(wheel: Path, extra: str, folder: Path) -> Installed:
    """The wheel with an extra in an environment of its own."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    done = run(python, "-m", "pip", "install", "--quiet", "--no-compile", wanted, folder=folder)
    if done.returncode:
        raise RuntimeError(done.stderr)
    [packages] = (folder / "lib").glob("python*/site-packages")
    names = "accel, bloom, range_index, loaders.store, accel.cli.main, spark_jobs.cli"
    imports = run(python, "-B", "-c", f"import {names}; accel.ReadAccelerator", folder=folder)
    demo = run(folder / "bin" / "accel", "demo", "--nodes-objects", "20", "--quiet", folder=folder)
    said = "runs" if demo.returncode == 0 else demo.stderr.splitlines()[0]
    found = {each.name.partition("-")[0] for each in packages.glob("*.dist-info")}
    return Installed(extra or "(none)", _megabytes(packages), len(found - {*_NO_BASE}), imports.returncode == 0, said)


def _megabytes(packages: Path) -> float:
    files = (each for each in packages.rglob("*") if each.is_file() and not each.is_symlink())
    counted = (
        each for each in files if each.suffix != ".pyc" and not each.relative_to(packages).parts[0].startswith(_NO_BASE)
    )
    return sum(each.stat().st_size for each in counted) / 1e6


def main(extras: Iterable[str]) -> None:
    """Print a line for each extra."""
    with tempfile.TemporaryDirectory() as name:
        wheel = built_wheel(Path(name))
        for extra in extras:
            with tempfile.TemporaryDirectory() as folder:
                found = install(wheel, extra, Path(folder))
            line = f"{found.extra:<10} {found.size_mb:6.0f} MB {found.packages:4} packages"
            sys.stdout.write(f"{line}   imports: {'ok' if found.imports else 'FAILED'}   demo: {found.demo}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:] or EXTRAS)
