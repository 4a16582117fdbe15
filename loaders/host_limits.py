"""What the host lets this process have: processors and threads, by its control groups, affinity and user.

A container's limits are in files of its control group, or of one above it; the least of them counts. Version 2 of
control groups has one tree, with `cpu.max` ("50000 100000": 50 ms of each 100) and `pids.max`; version 1 has a tree for
each controller, with `cpu.cfs_quota_us` and `cpu.cfs_period_us` instead. Inside a container the tree begins at its own
group, while `/proc/self/cgroup` may name the path of the host: groups that do not exist are passed over.

Python knows of the affinity only, also `os.process_cpu_count` of 3.13; a JVM of all that is here.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath


def processors(root: Path = Path("/")) -> int:
    """How many processors this process may use at one time, at least 1; a part of one counts as one.

    Args:
        root: contains `proc` and `sys`.
    """
    old = zip(_values("cpu", "cpu.cfs_quota_us", root), _values("cpu", "cpu.cfs_period_us", root), strict=False)
    quotas = [value.split() for value in _values("cpu", "cpu.max", root)] + [[*pair] for pair in old]
    shares = [math.ceil(int(quota) / int(period)) for quota, period in quotas if quota not in {"max", "-1"}]
    return max(1, min([_processors(), *shares]))


def _processors() -> int:
    # macOS has no affinities.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_text(root: Path = Path("/")) -> str:
    """The limit of threads, for people.

    Args:
        root: as of `processors`.
    """
    group = min((int(value) for value in _values("pids", "pids.max", root) if value != "max"), default=None)
    user = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    limits = [] if group is None else [f"{group} for the container (pids.max)"]
    limits += [] if user == resource.RLIM_INFINITY else [f"{user} for the user (ulimit -u)"]
    return ", ".join(limits) or "that of the machine"


def _values(controller: str, name: str, root: Path) -> Iterator[str]:
    """The contents of a file of the groups of this process, from its own to the root of the tree."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                tree = root / "sys/fs/cgroup" / (controllers and controller)
                for group in (PurePosixPath(path), *PurePosixPath(path).parents):
                    with suppress(OSError):
                        yield (tree / str(group).lstrip("/") / name).read_text().strip()
