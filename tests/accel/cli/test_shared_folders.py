"""Commands of several users on one store in a folder, which holds entries of others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.accel.cli.worlds import run
from tests.loaders.store.test_files_of_others import OTHER, above, as_other

__all__ = ["above"]  # a fixture


def done(url: str, *words: str, exit_code: int = 0) -> str:
    """What a command prints as JSON, and its notes."""
    result = run(*words, "--store", url, "--output", "json")
    assert result.exit_code == exit_code, result.output
    return result.output


def filled(folder: Path) -> str:
    url = f"file://{folder}"
    done(url, "catalog", "init", "--namespace", "n")
    done(url, "stream", "create", "--scope", "shop", "--stream", "orders")
    return url


def worked_with(url: str, scope: str) -> None:
    """What a user does with a store, command by command."""
    done(url, "catalog", "status")
    done(url, "stream", "create", "--scope", scope, "--stream", "orders")
    done(url, "catalog", "build-hints")
    done(url, "catalog", "gc", "--yes")
    done(url, "catalog", "verify")
    done(url, "doctor")


def test_a_user_goes_on_after_each_command_of_root(above: Path) -> None:
    (above / "users").mkdir()
    if os.geteuid() == 0:
        os.chown(above / "users", OTHER, OTHER)
    url = filled(above / "users")
    worked_with(url, "by-root")
    as_other(lambda: worked_with(url, "by-user"), umask=0o077)


def test_lost_and_found_of_a_volume_is_named_and_stops_no_command(above: Path) -> None:
    (above / "volume").mkdir()
    (above / "volume").chmod(0o777)
    worked_with(filled(above / "volume"), "by-root")  # which also imports what the other user may not read
    lost = above / "volume" / "lost+found"
    lost.mkdir()
    lost.chmod(0)

    def look() -> None:
        url = f"file://{above / 'volume'}"
        worked_with(url, "by-other")
        found = json.loads(run("catalog", "verify", url, "--output", "json").stdout)
        (notice,) = found["notices"]
        assert f"Permission denied: '{lost}' (user {lost.stat().st_uid}, group" in notice
        assert found["outcome"] == "clean"
        assert (
            f"notice        passed over: [Errno 13] Permission denied: '{lost}'" in run("catalog", "verify", url).stdout
        )
        findings = json.loads(run("doctor", url, "--output", "json").stdout)["findings"]
        assert [
            (each["check"], each["state"], str(lost) in each["found"]) for each in findings if "lost" in str(each)
        ] == [("folder", "doubtful", True)]

    as_other(look)


@pytest.mark.parametrize("place", ["accel/hints", "00000000"])
def test_a_folder_of_ours_that_may_not_be_read_stops_what_must_list_it(above: Path, place: str) -> None:
    (above / "store").mkdir()
    (above / "store").chmod(0o777)
    url = filled(above / "store")
    worked_with(url, "by-root")
    (above / "store" / place).mkdir(exist_ok=True)
    (above / "store" / place).chmod(0)

    def look() -> None:
        told = f"Permission denied: '{above / 'store' / place}' (user "
        assert told in done(url, "catalog", "gc", "--yes", exit_code=1)
        assert told in done(url, "catalog", "verify", exit_code=1)
        assert told in done(url, "doctor", exit_code=3)

    as_other(look)
