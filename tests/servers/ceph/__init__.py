"""A real S3 server for the tests: Ceph's RADOS Gateway, with the least of a cluster below it.

    python -m tests.servers.ceph up [DIRECTORY]  start one; prints what `make test-s3` needs to use it
    python -m tests.servers.ceph down DIRECTORY  stop that one and delete what it kept

It runs as whoever starts it, on loopback, on ports that are free, with keys of its own, and keeps its objects in
memory: any number may run at once, and nothing outlasts one but the packages.
"""

from __future__ import annotations

from tests.servers.ceph.cluster import CephFailed, Gateway, running, start, stop, unwind_on_signals
from tests.servers.ceph.packages import NotInstallable, install, missing_programs, obstacle

__all__ = [
    "CephFailed",
    "Gateway",
    "NotInstallable",
    "install",
    "missing_programs",
    "obstacle",
    "running",
    "start",
    "stop",
    "unwind_on_signals",
]
