"""Processors and threads as a container's control groups say, of both versions."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from loaders.host_limits import processors, threads_text
from spark_jobs.session import session_config


def host(root: Path, groups: str, files: dict[str, str]) -> Path:
    """A root folder with these control groups of this process, and these files below sys/fs/cgroup."""
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": files[name] for name in files}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)


OLD = "5:cpu,cpuacct:/docker/abc\n4:pids:/docker/abc\n"

QUOTAS = {
    "a half is one": ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
    "a part more is one more": ("0::/\n", {"cpu.max": "250000 100000\n"}, 3),
    "no quota": ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
    "more than there are": ("0::/\n", {"cpu.max": "6400000 100000\n"}, 8),
    "the least of a path": ("0::/a/b\n", {"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n"}, 2),
    "version 1": (OLD, {"cpu/docker/abc/cpu.cfs_quota_us": "50000", "cpu/docker/abc/cpu.cfs_period_us": "100000"}, 1),
    "version 1, inside": (OLD, {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
    "version 1, no quota": (OLD, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
    "a file that is not there": ("0::/a\n", {}, 8),
}


@pytest.mark.parametrize(("groups", "files", "expected"), QUOTAS.values(), ids=QUOTAS)
def test_processors_are_those_of_the_quota(tmp_path: Path, groups: str, files: dict[str, str], expected: int) -> None:
    assert processors(host(tmp_path, groups, files)) == expected


def test_a_host_without_control_groups_has_those_of_the_affinity(tmp_path: Path) -> None:
    assert processors(tmp_path) == 8


def test_the_partitions_of_spark_are_as_many_as_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.session.processors", lambda: 3)
    assert session_config("local[*]")["spark.sql.shuffle.partitions"] == "3"
    assert session_config("local[5]")["spark.sql.shuffle.partitions"] == "5"


def test_the_limit_of_threads_is_named_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert threads_text(tmp_path) == "that of the machine"
    files = {"pids/docker/abc/pids.max": "max\n", "pids/docker/pids.max": "12\n"}
    assert threads_text(host(tmp_path, OLD, files)) == "12 for the container (pids.max)"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20, 30))
    assert threads_text(tmp_path) == "12 for the container (pids.max), 20 for the user (ulimit -u)"
