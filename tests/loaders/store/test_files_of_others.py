"""A store in a folder that several users share, and that holds entries of others."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders import layout
from loaders.errors import AccessDenied, CorruptObject, RequestRefused, StoreFull, StoreUnavailable
from loaders.store import FileStore, IfMatch, MemoryStore
from loaders.store import file as file_module
from loaders.store.spooled import SpooledUpload

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
    assert modes_below(folder) == ({f"{mode:04o}"}, {of_files})


def test_each_folder_passes_on_its_own_rights(above: Path) -> None:
    store = make(above / "store")
    store.put("open/a", b"x")
    (store.folder / "open").chmod(0o770)
    store.put("open/b/c", b"x")
    assert modes_below(store.folder / "open") == ({"0770"}, {"0644", "0640"})
    assert (store.folder / "open" / "b" / "c%object").stat().st_mode & 0o777 == 0o640


def test_a_folder_is_never_seen_without_the_rights_of_the_one_above(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (above / "store").mkdir()
    (above / "store").chmod(0o777)
    store, other = make(above / "store"), make(above / "store")
    store.put("first", b"x")
    follow = file_module._follow
    done: list[bool] = []

    def beside(new: int, folder: Path) -> None:
        if not done:
            done.append(True)
            other.put("a/b/c", b"x")  # another writer, before the rights of the first one's folder are set
        follow(new, folder)

    monkeypatch.setattr(file_module, "_follow", beside)
    store._make(store.folder / "a" / "b")
    store.put("a/b/d", b"x")
    assert modes_below(store.folder / "a") == ({"0777"}, {"0644"})


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
        assert len(given) == 5, "the folders %new and a, the files %store and %reserve, and the object"


def test_a_folder_of_the_store_that_must_not_be_written_is_named_with_its_owner(above: Path) -> None:
    (above / "store").mkdir()
    (above / "store").chmod(0o777)
    store = make(above / "store")
    store.put("a/b", b"x")
    folder = store.folder / "a"
    folder.chmod(0o555)

    def write() -> None:
        mine = make(store.folder)
        told = re.escape(f"Permission denied: '{folder}' (user {folder.stat().st_uid}, group ")
        for act in (lambda: mine.put("a/b", b"y"), lambda: mine.put("a/c", b"y"), lambda: mine.delete("a/b")):
            with pytest.raises(AccessDenied, match=told):
                act()
        assert list((store.folder / file_module.NEW).iterdir()) == []

    as_other(write)


@pytest.mark.parametrize("kind", ["spooled", "folder"])
def test_a_disk_without_room_for_the_parts_of_an_upload_is_an_error_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the upload
    upload = (
        SpooledUpload("k", file, lambda *_: "", MemoryStore().get_range)
        if kind == "spooled"
        else make(tmp_path / "store").start_multipart("k")
    )
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StoreFull, match=r"'k': the temporary file of the parts: .*No space left"):
            upload.upload_part(1, b"x")
    upload.abort()
    file.close()


def test_old_files_of_another_user_that_may_not_be_deleted_stop_no_write(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(above / "store")
    store.put("a", b"x")
    old = store.folder / file_module.NEW / "old"
    old.write_bytes(b"")
    os.utime(old, (1, 1))

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    make(store.folder).put("b", b"x")
    assert [each.key for each in store.list("")] == ["a", "b"]


def keys_of(store: FileStore, prefix: str = "") -> list[str]:
    return [each.key for each in store.list(prefix)]


def closed(folder: Path) -> Path:
    folder.mkdir(parents=True)
    folder.chmod(0)
    return folder


@pytest.mark.parametrize("place", ["lost+found", "backup", "accel/lost+found", "accel/tables/.snapshot", "123/n"])
def test_a_folder_of_another_user_that_holds_no_keys_of_ours_stops_no_listing(above: Path, place: str) -> None:
    store = make(above / "store")
    for key in ("00000000/n/1", "accel/format", "accel/tables/t/k"):
        store.put(key, b"x")
    folder = closed(store.folder / place)

    def look() -> None:
        mine = make(store.folder)
        assert keys_of(mine) == ["00000000/n/1", "accel/format", "accel/tables/t/k"]
        assert keys_of(mine, "accel/tables/") == ["accel/tables/t/k"]
        (named,) = mine.notices()
        owner = folder.stat()
        assert named.startswith(f"passed over: [Errno 13] Permission denied: '{folder}' ")
        assert f"(user {owner.st_uid}, group {owner.st_gid}, mode 0000; this is user {os.geteuid()})" in named

    as_other(look)
    folder.chmod(0o700)


@pytest.mark.parametrize(
    ("place", "prefix"),
    [
        ("accel", ""),
        ("accel/hints", ""),
        ("accel/tables/t", ""),
        ("accel/tables/" + "x" * 64 + "%more", ""),
        ("00000000", ""),
        ("00000000/a%20namespace", ""),
        ("lost+found", "lost+found/"),
        ("lost+found", "lost"),
        ("mine/lost+found", "mine/"),
    ],
)
def test_a_folder_that_may_hold_what_is_asked_for_ends_the_listing_with_its_owner(
    above: Path, place: str, prefix: str
) -> None:
    store = make(above / "store")
    store.put("a", b"x")
    folder = closed(store.folder / place)

    def look() -> None:
        with pytest.raises(AccessDenied, match=rf"Permission denied: '{re.escape(str(folder))}' \(user \d+, group"):
            keys_of(make(store.folder), prefix)

    as_other(look)
    folder.chmod(0o700)


def test_an_object_that_may_not_be_read_ends_a_listing_if_its_key_is_ours(above: Path) -> None:
    store = make(above / "store")
    for key in ("accel/format", "z/other"):
        store.put(key, b"x")
    (store.folder / "z" / "other%object").chmod(0)

    def look_over() -> None:
        assert keys_of(make(store.folder)) == ["accel/format"]

    as_other(look_over)
    (store.folder / "accel" / "format%object").chmod(0)

    def look() -> None:
        with pytest.raises(AccessDenied, match=r"format%object' \(user \d+, group \d+, mode 0000; this is user \d+\)"):
            keys_of(make(store.folder))

    as_other(look)


def test_what_no_key_is_written_as_is_passed_over_and_some_of_it_named_once(
    above: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make(above / "store")
    store.put("a/b", b"x")
    folder = store.folder / "a"
    names = (b".nfs0001", b".DS_Store", b"b%object~", b"\xff\xfe", b"#b%object#", b"with\nlines")
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(b"")  # noqa: PTH118 - bytes
    (folder / ".snapshot").mkdir()
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe%object")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        for _ in range(3):
            assert keys_of(store) == ["a/b"]
    assert len(store.notices()) == file_module.NOTICES_MAX < len(names)
    assert len(caplog.messages) == file_module.NOTICES_MAX, "once, however often it is listed"
    assert all(each.isprintable() and str(folder) in each for each in caplog.messages)
    assert "no more of its kind are logged" in caplog.messages[-1]
    with pytest.raises(CorruptObject, match="expected a file"):
        store.get("a/pipe")
    other = make(store.folder)
    assert keys_of(other, "b") == []
    assert other.notices() == [], "its own folder for new files is known"


@pytest.mark.parametrize("name", ["00000000", "accel", "accel/tables", "other"])
def test_a_folder_that_was_moved_and_linked_is_listed_as_it_is_read(above: Path, name: str) -> None:
    store = make(above / "store")
    keys = ["00000000/n/1", "00000000/n/2", "accel/format", "accel/tables/t/a", "accel/tables/t/b", "other/x"]
    for key in keys:
        store.put(key, key.encode())
    (above / "disk").mkdir()
    moved = (store.folder / name).rename(above / "disk" / "moved")
    (store.folder / name).symlink_to(moved)
    for prefix in ("", name, name + "/", "accel/tables/t/"):
        assert keys_of(store, prefix) == [key for key in keys if key.startswith(prefix)]
    assert [each.key for each in store.list("", limit=2)] == keys[:2]
    assert all(store.get(key).body == key.encode() for key in keys)
    store.put(f"{name}/new/z", b"x")
    store.delete(f"{name}/new/z")
    assert keys_of(store) == keys
    assert store.notices() == []


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("00000000/n", "."),
        ("00000000/n", ".."),
        ("00000000/n/loop", ""),
        ("00000001", "00000000"),
        ("accel/tables/loop", "../disk"),
        ("accel/x", "/"),
    ],
)
def test_a_link_into_the_store_or_from_one_linked_folder_to_another_is_refused(
    above: Path, link: str, target: str
) -> None:
    store = make(above / "store")
    store.put("00000000/m/1", b"x")
    store.put("y/a", b"x")
    (above / "disk").mkdir()
    (store.folder / "accel").mkdir()
    (store.folder / "accel" / "tables").symlink_to(above / "disk")
    (store.folder / link).parent.mkdir(exist_ok=True, parents=True)
    (store.folder / link).symlink_to(store.folder / target)
    with pytest.raises(RequestRefused, match=rf"a link into the store, or from one linked folder to another.*{link}"):
        keys_of(store)
    (store.folder / link).unlink()
    (store.folder / "y" / "y").symlink_to(store.folder / "y")
    assert keys_of(store) == ["00000000/m/1", "y/a"], "no key of ours is below y"
    assert str(store.folder / "y" / "y") in store.notices()[0]


@pytest.mark.parametrize("name", ["00000000", "accel", "accel/tables"])
def test_a_link_to_nothing_is_no_missing_object(above: Path, name: str) -> None:
    store = make(above / "store")
    store.put("a", b"x")
    (store.folder / name).parent.mkdir(exist_ok=True)
    (store.folder / name).symlink_to(above / "unmounted")
    acts: list[Callable[[], object]] = [
        lambda: keys_of(store),
        lambda: keys_of(store, f"{name}/"),
        lambda: keys_of(store, f"{name}/b/"),
        lambda: store.get(f"{name}/b/c"),
        lambda: store.put(f"{name}/b", b""),
        lambda: store.delete(f"{name}/b"),
    ]
    for act in acts:
        with pytest.raises(StoreUnavailable, match=rf"{name}' is a link to nothing: is its disk mounted"):
            act()
    assert list((store.folder / file_module.NEW).iterdir()) == []
    (store.folder / name).unlink()
    (store.folder / "notes").symlink_to(above / "unmounted")
    assert keys_of(store) == ["a"]
    assert "notes' is a link to nothing" in store.notices()[0]


def test_a_file_that_is_replaced_on_its_server_meanwhile_is_opened_again_once(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(above / "store")
    etag = store.put("a/b", b"x")
    really, stale = os.open, [0]

    def open_stale(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if str(path).endswith("%object") and stale[0]:
            stale[0] -= 1
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return really(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_stale)
    acts: list[Callable[[], object]] = [
        lambda: store.get("a/b"),
        lambda: keys_of(store),
        lambda: store.put("a/b", b"x", condition=IfMatch(etag)),
    ]
    for act in acts:
        stale[0] = 1
        act()
        stale[0] = 2
        with pytest.raises(StoreUnavailable, match="Stale file handle"):
            act()


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
NUMBERS = st.integers(0, 2**63 - 1)


@given(NAMES, NAMES, NUMBERS, NUMBERS, st.uuids())
def test_whatever_a_key_of_ours_begins_with_is_known(name: str, key: str, number: int, other: int, each: UUID) -> None:
    folder = layout.table_folder(layout.TABLES_PREFIX, name)
    kind = layout.HintKind.PACKS
    for built in (
        layout.ObjectLayout(namespace="a+b ü").object_key(number),
        layout.FORMAT_KEY,
        layout.CLOCK_KEY,
        layout.marker_key(folder),
        layout.value_key(folder, key),
        layout.upload_key(number, key),
        layout.hint_root_key(kind, number),
        layout.hint_file_key(kind, number, other, "filters-0.x"),
        layout.time_part_key(number, other),
        layout.transaction_key(each, each),
        layout.number_table_key(number, other),
        layout.merging_key(number, other, 5),
        f"{layout.JOURNAL_PREFIX}{number:015d}-{other:06d}-{'0f' * 16}.jsonl",
    ):
        first = built.index("/") + 1
        assert all(layout.may_be_ours(built[:end]) for end in range(first, len(built) + 1)), built
