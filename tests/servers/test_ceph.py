"""What is decided about Ceph before any of it runs: whether to install it, how it is configured, what belongs to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers.ceph import CephFailed, Machine, NotInstallable, install, missing_programs, obstacle, start, stop
from tests.servers.ceph.__main__ import main
from tests.servers.ceph.cluster import processes
from tests.servers.ceph.configuration import HOST, Ports, configuration, free_ports
from tests.servers.ceph.packages import PACKAGES, PROGRAMS

INSTALLED = frozenset(PROGRAMS)
DEBIAN = frozenset({"apt-get"})
SUDO = ("sudo", "-n")


@pytest.mark.parametrize("root_prefix", [None, (), SUDO])
def test_where_ceph_is_installed_nothing_stands_in_the_way(root_prefix: tuple[str, ...] | None) -> None:
    machine = Machine(INSTALLED, root_prefix)
    assert missing_programs(machine) == []
    assert obstacle(machine) == ""
    install(machine)


@pytest.mark.parametrize("root_prefix", [(), SUDO])
def test_it_may_be_installed_with_apt_get_as_root(root_prefix: tuple[str, ...]) -> None:
    assert obstacle(Machine(DEBIAN, root_prefix)) == ""


@pytest.mark.parametrize("missing", PROGRAMS)
def test_what_is_missing_is_named(missing: str) -> None:
    machine = Machine(INSTALLED - {missing}, root_prefix=())
    assert missing_programs(machine) == [missing]
    assert f"({missing} not found), and there is no apt-get" in obstacle(machine)


def test_who_is_not_root_is_told_what_to_run() -> None:
    found = obstacle(Machine(DEBIAN, root_prefix=None))
    assert "sudo apt-get install" in found
    assert [name for name in PACKAGES if name not in found] == []
    with pytest.raises(NotInstallable, match="only root may install it"):
        install(Machine(DEBIAN, root_prefix=None))


class FakeApt:
    """A folder that is all of `PATH`, with an `apt-get` that writes down what it is told and installs empty files."""

    def __init__(self, folder: Path, update_status: int, install_status: int) -> None:
        self.log = folder / "log"
        for name in ("env", "chmod"):
            (folder / name).symlink_to(f"/usr/bin/{name}")
        programs = "" if install_status else " ".join(str(folder / name) for name in PROGRAMS)
        self._write(
            folder / "apt-get",
            f"""#!/bin/sh
            echo "$DEBIAN_FRONTEND $*" >> {self.log}
            [ "$1" = update ] && exit {update_status}
            for each in {programs}; do : > $each; chmod +x $each; done
            exit {install_status}""",
        )

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def calls(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()]


@pytest.mark.parametrize("update_status", [0, 100])
def test_lists_that_cannot_be_renewed_do_not_stop_an_installation(
    update_status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = FakeApt(tmp_path, update_status, install_status=0)
    monkeypatch.setenv("PATH", str(tmp_path))
    install(Machine(DEBIAN, root_prefix=()))
    update, installation = apt.calls()
    assert update[:2] == ["noninteractive", "update"]
    assert installation[:2] == ["noninteractive", "install"]
    assert {"--yes", "--no-install-recommends", *PACKAGES} <= set(installation)


def test_a_failed_installation_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeApt(tmp_path, update_status=0, install_status=100)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotInstallable, match=r"failed \(exit code 100\)"):
        install(Machine(DEBIAN, root_prefix=()))


def test_a_cluster_keeps_to_its_directory_and_to_loopback(tmp_path: Path) -> None:
    parser = ConfigParser(interpolation=None)
    parser.read_string(configuration(tmp_path, "some-id", Ports(monitor=5001, gateway=5002)))
    settings = dict(parser["global"])
    paths = [value for value in settings.values() if value.startswith("/")]
    assert len(paths) == 6
    assert [path for path in paths if not Path(path).is_relative_to(tmp_path)] == []
    addresses = [value for value in settings.values() if any(each in value for each in ("5001", "5002", "/32"))]
    assert len(addresses) == 4
    assert [value for value in addresses if HOST not in value] == []


def test_no_socket_lies_in_a_directory_whose_name_may_be_too_long(tmp_path: Path) -> None:
    parser = ConfigParser(interpolation=None)
    parser.read_string(configuration(tmp_path, "some-id", Ports(1, 2)))
    assert parser["global"]["admin socket"] == ""


@pytest.mark.parametrize("character", ["#", ";", "$", '"', "'", "\\"])
def test_a_directory_that_the_configuration_cannot_name_is_refused(character: str) -> None:
    with pytest.raises(ValueError, match="expected a directory without"):
        configuration(Path(f"/tmp/a{character}b"), "some-id", Ports(1, 2))  # noqa: S108 - only a name


def test_free_ports_differ_and_can_be_used() -> None:
    ports = free_ports()
    with socket.create_server((HOST, ports.monitor)), socket.create_server((HOST, ports.gateway)):
        pass


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
        assert not mine.exists()
        assert other.exists()
    stop(other)


def test_only_the_directory_of_a_cluster_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "novel.txt").touch()
    with pytest.raises(FileExistsError, match=r"has no ceph\.conf"):
        stop(tmp_path)
    with pytest.raises(FileExistsError, match="is not empty"):
        start(tmp_path)
    assert (tmp_path / "novel.txt").exists()
    stop(tmp_path / "nothing")


def test_a_start_that_fails_names_the_program_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CephFailed, match="ceph-authtool"):
        start(tmp_path / "cluster")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["down"], ["up", "a", "b"], ["around"]])
def test_a_command_that_is_none_shows_how_it_is_used(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: python -m tests.servers.ceph install | up")


def test_a_failed_command_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "novel.txt").touch()
    assert main(["down", str(tmp_path)]) == 1
    assert "not the directory of a cluster" in capsys.readouterr().err
