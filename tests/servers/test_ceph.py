"""What is decided about Ceph before any of it runs, and that nothing is ended or deleted but what belongs to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers.ceph import CephFailed, NotInstallable, install, missing_programs, obstacle, start, stop
from tests.servers.ceph.__main__ import main
from tests.servers.ceph.cluster import processes
from tests.servers.ceph.packages import PACKAGES, PROGRAMS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All of `PATH`; we are root."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def make_program(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines]))
    path.chmod(0o755)


def make_apt_get(folder: Path, update_status: int, install_status: int) -> Path:
    """An `apt-get` that writes down what it is told, and installs empty programs; gives where it writes."""
    programs = "" if install_status else " ".join(str(folder / name) for name in PROGRAMS)
    make_program(
        folder / "apt-get",
        f'echo "$DEBIAN_FRONTEND $*" >> {folder / "log"}',
        f'[ "$1" = update ] && exit {update_status}',
        f"for each in {programs}; do : > $each; /bin/chmod +x $each; done",
        f"exit {install_status}",
    )
    return folder / "log"


def test_where_ceph_is_installed_nothing_stands_in_the_way(folder: Path) -> None:
    for name in PROGRAMS:
        make_program(folder / name)
    assert (missing_programs(), obstacle()) == ([], "")
    install()
    (folder / "radosgw").unlink()
    assert "(radosgw not found), and there is no apt-get" in obstacle()


def test_who_is_not_root_is_told_what_to_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_apt_get(folder, 0, 0)
    assert obstacle() == ""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "sudo apt-get install" in obstacle()
    assert [name for name in PACKAGES if name not in obstacle()] == []
    with pytest.raises(NotInstallable, match="only root may install it"):
        install()


@pytest.mark.parametrize("update_status", [0, 100])
def test_lists_that_cannot_be_renewed_do_not_stop_an_installation(folder: Path, update_status: int) -> None:
    log = make_apt_get(folder, update_status, 0)
    install()
    update, installation = (line.split() for line in log.read_text().splitlines())
    assert update[:2] == ["noninteractive", "update"]
    assert installation[:2] == ["noninteractive", "install"]
    assert {"--yes", "--no-install-recommends", *PACKAGES} <= set(installation)


def test_a_failed_installation_is_an_error(folder: Path) -> None:
    make_apt_get(folder, 0, 100)
    with pytest.raises(NotInstallable, match=r"failed \(exit code 100\)"):
        install()


@contextmanager
def daemon(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like one of the cluster in a directory, and ends by itself with this one."""
    directory.mkdir(exist_ok=True)
    config = directory / "ceph.conf"
    config.touch()
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "-c", str(config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own words
        assert process.stdout is not None
        process.stdout.readline()  # it has become what it is to be
        yield process


def test_stopping_ends_what_runs_in_that_directory_and_nothing_else(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "mine-too"
    with daemon(mine) as first, daemon(mine) as second, daemon(other) as foreign:
        assert sorted(processes(mine)) == sorted([first.pid, second.pid])
        assert processes(mine, os.fsdecode(sys.executable)) == processes(mine)
        assert processes(mine, "radosgw") == []
        stop(mine)
        assert (first.wait(), second.wait(), foreign.poll()) == (-9, -9, None)
        assert (mine.exists(), other.exists()) == (False, True)
    stop(other)


def test_only_the_directory_of_a_cluster_is_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "novel.txt").touch()
    with pytest.raises(FileExistsError, match="is not empty"):
        start(tmp_path)
    assert main(["down", str(tmp_path)]) == 1
    assert "not the directory of a cluster" in capsys.readouterr().err
    assert (tmp_path / "novel.txt").exists()
    stop(tmp_path / "nothing")


def test_a_start_that_fails_names_the_program_and_leaves_nothing(folder: Path) -> None:
    with pytest.raises(CephFailed, match="ceph-authtool"):
        start(folder / "cluster")
    assert list(folder.iterdir()) == []
