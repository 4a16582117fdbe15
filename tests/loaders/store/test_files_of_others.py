"""A store in a folder that several users share, and that holds entries of others."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loaders.errors import AccessDenied
from loaders.store import FileStore, file_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OTHER = 10777
"""The id of a user and a group without an entry in any list of users. Only root can become it."""


@pytest.fixture
def above() -> Iterator[Path]:
    """A folder that every user may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for each, _, _ in os.walk(folder):
        Path(each).chmod(0o700)
    shutil.rmtree(folder)


def make(folder: Path) -> FileStore:
    return FileStore(folder, sleep=time.sleep, durable=False)  # noqa: TID251 - the edge of the test


def as_other(work: Callable[[], object], umask: int = 0o022) -> None:
    """Run this in a process without root's rights: as another user, or, where nobody can become one, as the same."""

    def run() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
        os.umask(umask)
        work()

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join()
    assert child.exitcode == 0


def modes_below(folder: Path) -> tuple[set[str], set[str]]:
    """The modes of all folders, and those of all files."""
    found = [path.stat().st_mode for path in folder.rglob("*")]
    folders = {f"{stat.S_IMODE(mode):04o}" for mode in found if stat.S_ISDIR(mode)}
    return folders, {f"{stat.S_IMODE(mode):04o}" for mode in found if stat.S_ISREG(mode)}


def write_all(store: FileStore) -> None:
    store.put("a/b", b"x")
    upload = store.start_multipart("m/n")
    upload.complete([upload.upload_part(1, b"x")])
    store.start_multipart("left").upload_part(1, b"part")


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
@pytest.mark.parametrize(
    ("mode", "of_files"), [(0o755, "0644"), (0o700, "0600"), (0o770, "0640"), (0o775, "0644"), (0o1777, "0644")]
)
def test_what_is_made_in_a_store_has_the_rights_of_its_folder_whatever_the_umask(
    above: Path, mode: int, of_files: str, umask: int
) -> None:
    folder = above / "store"
    folder.mkdir()
    folder.chmod(mode)
    before = os.umask(umask)
    try:
        write_all(make(folder))
    finally:
        os.umask(before)
    assert len([path for path in (folder / file_names.NEW).rglob("*") if path.is_file()]) == 1, "a part that was left"
    assert modes_below(folder) == ({f"{mode:04o}"}, {of_files})


def test_each_folder_passes_on_its_own_rights(above: Path) -> None:
    store = make(above / "store")
    store.put("open/a", b"x")
    (store.folder / "open").chmod(0o770)
    store.put("open/b/c", b"x")
    assert modes_below(store.folder / "open") == ({"0770"}, {"0644", "0640"})
    assert (store.folder / "open" / "b" / "c%object").stat().st_mode & 0o777 == 0o640


def test_a_group_that_the_writer_cannot_give_gets_no_more_than_all_others(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = above / "store"
    folder.mkdir()
    folder.chmod(0o770)
    really = os.fstat

    def of_another_group(descriptor: int) -> os.stat_result:
        found = really(descriptor)
        return os.stat_result([*found[:5], found.st_gid + 1, *found[6:]])

    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fstat", of_another_group)
    monkeypatch.setattr(os, "fchown", refuse)
    make(folder).put("a/b", b"x")
    monkeypatch.undo()
    assert (folder / "a").stat().st_mode & 0o777 == 0o700
    assert (folder / "a" / "b%object").stat().st_mode & 0o777 == 0o600


def test_what_root_writes_into_the_store_of_a_user_is_the_users(above: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = above / "store"
    folder.mkdir()
    given: list[tuple[int, int]] = []
    if os.geteuid() == 0:
        os.chown(folder, OTHER, OTHER)
        write_all(make(folder))
        assert {(path.stat().st_uid, path.stat().st_gid) for path in folder.rglob("*")} == {(OTHER, OTHER)}
    else:  # nobody else may give files away: what would be given is compared
        really = os.fstat

        def of_root(descriptor: int) -> os.stat_result:
            found = really(descriptor)
            return os.stat_result([*found[:4], 0, 0, *found[6:]])

        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(os, "fstat", of_root)
        monkeypatch.setattr(os, "fchown", lambda _, user, group: given.append((user, group)))
        make(folder).put("a/b", b"x")
        monkeypatch.undo()
        assert set(given) == {(folder.stat().st_uid, folder.stat().st_gid)}
        assert len(given) == 3, "the folders %new and a, and the object"


def test_a_user_goes_on_in_a_store_that_root_wrote_to_once(above: Path) -> None:
    folder = above / "store"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, OTHER, OTHER)
    as_other(lambda: make(folder).put("a/before", b"user"))
    write_all(make(folder))

    def go_on() -> None:
        store = make(folder)
        assert [each.key for each in store.list("")] == ["a/b", "a/before", "m/n"]
        assert store.get("a/b").body == b"x"
        store.put("a/b", b"user")
        store.put("m/o", b"user")
        assert store.delete_many(["a/b", "m/n"]) == []

    as_other(go_on, umask=0o077)


def test_a_folder_that_must_not_be_written_is_told(above: Path) -> None:
    store = make(above / "store")
    store.put("a", b"x")
    store.folder.chmod(0o555)
    (store.folder / file_names.NEW).chmod(0o555)

    def write() -> None:
        with pytest.raises(AccessDenied, match="Permission denied"):
            make(store.folder).put("a", b"y")
        assert make(store.folder).get("a").body == b"x"

    as_other(write)


def test_old_files_of_another_user_that_may_not_be_deleted_stop_no_write(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(above / "store")
    store.put("a", b"x")
    old = store.folder / file_names.NEW / "old"
    old.write_bytes(b"")
    os.utime(old, (1, 1))

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    make(store.folder).put("b", b"x")
    assert [each.key for each in store.list("")] == ["a", "b"]
