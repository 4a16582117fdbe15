"""Whether Ceph is installed, whether it may be, and how: decided from a value, so that any machine can be tried.

It may be installed where `apt-get` is found and we are root, or become root without being asked for a password.
Everywhere else a person has to do it, and `obstacle` tells what.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

PACKAGES = ("ceph-mon", "ceph-osd", "radosgw")
PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")

_INSTALL_SECONDS_MAX = 1800
_LOCK_SECONDS_MAX = 600  # another checkout may be installing the same
_STANDARD_ERROR = 2  # a shell may take what stands on standard output for commands


class NotInstallable(Exception):
    """Ceph is missing here and was not installed; the message tells why, and how to go on."""


@dataclass(frozen=True)
class Machine:
    """What decides about an installation.

    Attributes:
        programs: those of `PROGRAMS`, and `apt-get`, that are found.
        root_prefix: the words before a command that make it run as root: none for root itself, `sudo -n` where
            that asks for no password; None where there is no way.
    """

    programs: frozenset[str]
    root_prefix: tuple[str, ...] | None


def this_machine() -> Machine:
    """The machine that we are on, as it is now."""
    programs = frozenset(name for name in (*PROGRAMS, "apt-get") if shutil.which(name))
    return Machine(programs, _root_prefix())


def _root_prefix() -> tuple[str, ...] | None:
    if os.geteuid() == 0:
        return ()
    prefix = ("sudo", "-n")
    if shutil.which("sudo") and _returns((*prefix, "true"), output=subprocess.DEVNULL) == 0:
        return prefix
    return None


def missing_programs(machine: Machine) -> list[str]:
    """Programs of Ceph that are not found there; with none missing, it is installed."""
    return [name for name in PROGRAMS if name not in machine.programs]


def obstacle(machine: Machine) -> str:
    """Why Ceph cannot be used or installed there, with what a person can do; empty where it can."""
    missing = missing_programs(machine)
    if not missing:
        return ""
    needed = f"Ceph is not installed ({', '.join(missing)} not found)"
    if "apt-get" not in machine.programs:
        return f"{needed}, and there is no apt-get to install it with. Install Ceph's monitor, OSD and RADOS Gateway"
    if machine.root_prefix is None:
        return f"{needed}, and only root may install it. Run: sudo {' '.join(_install_command())}"
    return ""


def install(machine: Machine) -> None:
    """Install what is missing; does nothing where nothing is.

    Raises:
        NotInstallable: it may not be installed here, or that failed.
    """
    if not missing_programs(machine):
        return
    if reason := obstacle(machine):
        raise NotInstallable(reason)
    # Lists that could not be renewed are often new enough: the installation itself tells.
    _run_as_root(machine, "apt-get", "update", "--quiet")
    status = _run_as_root(machine, *_install_command())
    if status or missing_programs(this_machine()):
        raise NotInstallable(f"installing {', '.join(PACKAGES)} failed (exit code {status}); see what apt-get said")


def _install_command() -> tuple[str, ...]:
    # Recommended packages would add a manager daemon, its web page and their Python libraries: four times the size.
    options = ("--yes", "--quiet", "--no-install-recommends", "-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS_MAX}")
    return ("apt-get", "install", *options, *PACKAGES)


def _run_as_root(machine: Machine, *command: str) -> int:
    whole = (*(machine.root_prefix or ()), "env", "DEBIAN_FRONTEND=noninteractive", *command)
    sys.stderr.write(f"Ceph is missing; running: {' '.join(whole)}\n")
    sys.stderr.flush()
    return _returns(whole, output=_STANDARD_ERROR)


def _returns(command: tuple[str, ...], *, output: int) -> int:
    """The exit code of a command."""
    done = subprocess.run(  # noqa: S603 - our own words
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        timeout=_INSTALL_SECONDS_MAX,
        check=False,
    )
    return done.returncode
