"""Whether Ceph is installed, or root may install it, where there is `apt-get`; `obstacle` says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PACKAGES = ("ceph-mon", "ceph-osd", "radosgw")
PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")

_INSTALL_SECONDS_MAX = 1800
# Recommended packages would add a manager daemon, its web page and their Python libraries: four times the size. Another
# checkout may be installing the same: its lock is waited for.
_INSTALL = ("install", "--yes", "--quiet", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600", *PACKAGES)


class NotInstallable(Exception):
    """Ceph is missing here and was not installed; the message tells why, and how to go on."""


def missing_programs() -> list[str]:
    """Programs of Ceph that are not found here; with none missing, it is installed."""
    return [name for name in PROGRAMS if not shutil.which(name)]


def obstacle() -> str:
    """Why Ceph cannot be used or installed here, with what a person can do; empty where it can."""
    missing = missing_programs()
    if not missing:
        return ""
    needed = f"Ceph is not installed ({', '.join(missing)} not found)"
    if not shutil.which("apt-get"):
        return f"{needed}, and there is no apt-get to install it with. Install Ceph's monitor, OSD and RADOS Gateway"
    if os.geteuid():
        return f"{needed}, and only root may install it. Run: sudo apt-get {' '.join(_INSTALL)}"
    return ""


def install() -> None:
    """Install what is missing; does nothing where nothing is.

    Raises:
        NotInstallable: it may not be installed here, or that failed.
    """
    if not missing_programs():
        return
    if reason := obstacle():
        raise NotInstallable(reason)
    _apt_get("update", "--quiet")  # lists that could not be renewed are often new enough: the installation tells
    status = _apt_get(*_INSTALL)
    if status or missing_programs():
        raise NotInstallable(f"installing {', '.join(PACKAGES)} failed (exit code {status}); see what apt-get said")


def _apt_get(*words: str) -> int:
    """Its exit code; what it says goes to standard error, as a shell may take standard output for commands."""
    sys.stderr.write(f"Ceph is missing; running: apt-get {' '.join(words)}\n")
    sys.stderr.flush()
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ("apt-get", *words)
    done = subprocess.run(  # noqa: S603 - our own words
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=environment, timeout=_INSTALL_SECONDS_MAX, check=False
    )
    return done.returncode
