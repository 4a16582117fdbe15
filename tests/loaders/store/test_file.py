"""The store in a folder: what it adds to the contract."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import pickle
import re
import resource
import signal
import stat
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders.errors import (
    CorruptObject,
    KeyMissing,
    PreconditionFailed,
    RequestRefused,
    StoreFull,
    StoreUnavailable,
    WriteConflict,
    WrongFolder,
)
from loaders.store import CreateOnly, FileStore, IfMatch, MemoryStore
from loaders.store import file as file_module
from loaders.store.base import ALWAYS
from tests.examples import examples

SPAWN = multiprocessing.get_context("fork")
"""Forked: a child has the descriptors and locks of the test, which is the harder case."""


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return make(tmp_path / "store")


def make(folder: Path, *, durable: bool = False) -> FileStore:
    return FileStore(folder, sleep=time.sleep, durable=durable)  # noqa: TID251 - real processes race


def in_processes(count: int, work: Callable[[FileStore, int, Barrier], None], folder: Path) -> None:
    barrier = SPAWN.Barrier(count)
    children = [SPAWN.Process(target=work, args=(make(folder), number, barrier)) for number in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * count


def _count(store: FileStore, number: int, barrier: Barrier) -> None:
    barrier.wait()
    for step in range(25):
        while True:
            found = store.get("counter")
            body = f"{int(found.body.split()[0]) + 1} {number}.{step}".encode()
            try:
                store.put("counter", body, condition=IfMatch(found.etag))
            except PreconditionFailed:
                continue
            break


def test_processes_of_compare_and_set_lose_nothing(store: FileStore) -> None:
    store.put("counter", b"0")
    in_processes(4, _count, store.folder)
    assert store.get("counter").body.split()[0] == b"100"


def _create_and_delete(store: FileStore, number: int, barrier: Barrier) -> None:
    # The only key of its folder: each deletion deletes the folder, too, while others are about to write in it.
    barrier.wait()
    for step in range(25):
        try:
            store.put("a/b/lock", b"", condition=CreateOnly())
        except (PreconditionFailed, WriteConflict):
            continue
        Path(store.folder.parent / "held").mkdir()  # fails if somebody else has it
        Path(store.folder.parent / "held").rmdir()
        store.put(f"won/{number}/{step}", b"")
        store.delete("a/b/lock")


def test_processes_that_create_and_delete_one_key_never_both_have_it(store: FileStore) -> None:
    in_processes(4, _create_and_delete, store.folder)
    assert list(store.list("won/"))
    assert list(store.list("a")) == []
    assert not (store.folder / "a").exists(), "empty folders go"


def test_the_lock_of_a_killed_process_is_free_and_what_it_wrote_is_not_seen(store: FileStore) -> None:
    etag = store.put("k", b"before")
    reading, writing = os.pipe()

    def die() -> None:
        with store._locked(store.folder):
            (store._new() / "half").write_bytes(b"half of an object")
            os.write(writing, b"1")
            signal.pause()

    child = SPAWN.Process(target=die)
    child.start()
    assert os.read(reading, 1) == b"1"
    impatient = FileStore(store.folder, sleep=lambda _: None, durable=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_module, "LOCK_POLLS_MAX", 3)
        with pytest.raises(StoreUnavailable, match="another process holds the lock"):
            impatient.put("k", b"after", condition=IfMatch(etag))
    assert store.get("k").body == b"before", "readers need no lock"
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    os.close(reading)
    os.close(writing)
    store.put("k", b"after", condition=IfMatch(etag))
    assert [found.key for found in store.list("")] == ["k"]


def test_what_killed_writers_left_is_deleted_a_day_later(store: FileStore) -> None:
    store.put("k", b"")
    upload = store.start_multipart("m")
    receipt = upload.upload_part(1, b"x")
    new = store.folder / file_module.NEW
    (new / "folder").mkdir()
    (new / "young.file").write_bytes(b"x")
    (new / "old.file").write_bytes(b"x")
    for old in (new / "folder", new / "old.file"):
        os.utime(old, (1, 1))
    make(store.folder).put("other", b"")
    assert sorted(path.name for path in new.iterdir()) == ["folder", "young.file"], "a folder is of another program"
    upload.complete([receipt])
    assert store.get("m").body == b"x"


def test_a_durable_write_syncs_the_file_and_its_new_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()).removeprefix(str(tmp_path)))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store = make(tmp_path / "s", durable=True)
    store.put("a/b", b"x")
    names = [name for name in synced if "%new/" not in name]
    assert names == ["", "/s", "/s", "/s", "/s/a"]  # the store's folder, %new, %store, a, and the file's name in it
    assert len(synced) == len(names) + 2, "and the files, before they had those names"
    synced.clear()
    store.delete("a/b")
    assert synced == ["/s/a"]


@pytest.mark.parametrize("code", ["EBADF", "EINVAL", "ENOLCK", "ENOSYS", "EOPNOTSUPP"])
def test_a_file_system_without_locks_is_named_at_the_first_write(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def refuse(*_: int) -> None:
        number = getattr(errno, code)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for condition in (ALWAYS, CreateOnly()):
        with pytest.raises(
            RequestRefused, match=r"a file system with flock, found \[Errno .* local disk.*'/.*"
        ) as raised:
            store.put("a/b", b"x", condition=condition)
        assert str(store.folder) in str(raised.value)
        assert not raised.value.retryable
    assert list((store.folder / file_module.NEW).iterdir()) == []


def test_a_lock_that_a_signal_interrupts_is_asked_for_again(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    really, left = fcntl.flock, [3]

    def interrupted(descriptor: int, operation: int) -> None:
        if operation != fcntl.LOCK_UN and left[0]:
            left[0] -= 1
            raise InterruptedError(errno.EINTR, "Interrupted system call")
        really(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", interrupted)
    store.put("a/b", b"x")
    assert (left, store.get("a/b").body) == ([0], b"x")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBADF])
def test_folders_that_cannot_be_synced_are_named_once_and_stop_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    really = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store = make(tmp_path / "s", durable=True)
    store.put("a/b", b"x")
    store.put("a/b", b"y")
    store.delete("a/b")
    assert caplog.messages == store.notices() == [store.notices()[0]]
    assert all(
        word in caplog.messages[0] for word in (str(store.folder), f"[Errno {number}]", "a loss of power", "disk")
    )


def test_a_folder_that_is_not_synced_by_a_broken_disk_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        make(tmp_path / "s", durable=True).put("a/b", b"x")


def test_a_folder_on_another_file_system_is_refused(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(source: object, target: object, **_: int) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", str(source), None, str(target))

    store.put("a/c", b"x")
    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(
        RequestRefused, match=r"Invalid cross-device link.*expected one file system for the whole store"
    ):
        store.put("a/b", b"x")
    assert list((store.folder / file_module.NEW).iterdir()) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"accel-object 1 ",
        b"accel-object 1 e 5".ljust(95) + b"\n" + b"1234",
        b"accel-object 2 e 0 m m".ljust(255) + b"\n",
        b"accel-object 2 e 0".ljust(255) + b"\n",
        b"x" * 500,
    ],
)
def test_a_file_that_is_no_object_is_named(store: FileStore, body: bytes) -> None:
    store.put("a/b", b"x")
    (store.folder / "a" / "b%object").write_bytes(body)
    for read in (store.get, lambda key: store.get_range(key, 0, 1), lambda _: list(store.list(""))):
        with pytest.raises(CorruptObject, match=r"'a/b'.*expected a header"):
            read("a/b")


def test_what_others_put_into_the_folder_is_no_object(store: FileStore) -> None:
    store.put("a/b", b"x")
    # The last ones are what no key is written as: no UTF-8, an "A" in another form, a chunk that is too long.
    others = ("README", "a/notes.txt", "a/%zz", "%what%object", "a/%4a%object", "%FF%object", "%41%object")
    for name in (*others, "x" * 64 + "%object"):
        (store.folder / name).write_bytes(b"mine")
    for name in ("b c", "%42", "c%more"):
        (store.folder / name).mkdir()
        (store.folder / name / "d%object").write_bytes((store.folder / "a" / "b%object").read_bytes())
    assert [found.key for found in store.list("")] == ["a/b"]
    store.delete("a/b")
    assert (store.folder / "a" / "notes.txt").exists()


def test_a_path_that_no_file_system_takes_is_refused(store: FileStore) -> None:
    store.put("ü" * 512, b"x")
    assert [found.key for found in store.list("")] == ["ü" * 512]
    with pytest.raises(RequestRefused, match="1025"):
        store.put("ü" * 512 + "x", b"")
    with pytest.raises(RequestRefused, match="File name too long"):
        store.put("/" * 1000, b"")


def test_a_folder_in_the_way_of_the_store_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KeyMissing):
        make(tmp_path / "file" / "store").get("k")
    with pytest.raises(ValueError, match="absolute path"):
        make(Path("relative"))


@pytest.mark.parametrize(
    "key", ["../out", "../../out", "a/../../out", "/out", "//out", "./../out", "%2E%2E/out", "a/.."]
)
def test_no_key_leads_out_of_the_folder(tmp_path: Path, key: str) -> None:
    outside = tmp_path / "outside"
    store = make(outside / "folder")
    store.put(key, b"x")
    assert [path for path in outside.rglob("*") if path.is_file() and store.folder not in path.parents] == []
    assert [path.name for path in outside.iterdir()] == ["folder"]
    assert [found.key for found in store.list("")] == [key]
    store.delete(key)
    with pytest.raises(KeyMissing):
        store.get(key)


REQUESTS: dict[str, Callable[[FileStore], object]] = {
    "get": lambda store: store.get("a/b"),
    "get of a missing key": lambda store: store.get("none"),
    "get_range": lambda store: store.get_range("a/b", 0, 1),
    "get_tail": lambda store: store.get_tail("a/b", 1),
    "get_if_changed": lambda store: store.get_if_changed("a/b", "x"),
    "list": lambda store: list(store.list("")),
    "put": lambda store: store.put("c", b"x"),
    "conditional put": lambda store: store.put("c", b"x", condition=CreateOnly()),
    "delete": lambda store: store.delete("a/b"),
    "delete_many": lambda store: _raise(store.delete_many(["a/b"])[0].error),
    "start_multipart": lambda store: store.start_multipart("c"),
    "give_up_reserve": lambda store: store.give_up_reserve(),
}


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_folder_that_vanished_is_not_made_again_and_all_goes_on_when_it_is_back(
    store: FileStore, request_: Callable[[FileStore], object]
) -> None:
    """As a volume that is not mounted: first without its folder, then with the empty one below it."""
    store.put("a/b", b"x")
    away = store.folder.rename(store.folder.parent / "away")
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes: the copy expects the same store
    for here in (store, copy):
        with pytest.raises(WrongFolder, match=rf"expected store \w{{32}} in the folder '{store.folder}', found no"):
            request_(here)
    assert not store.folder.exists()
    store.folder.mkdir()
    with pytest.raises(WrongFolder) as caught:
        request_(store)
    assert list(store.folder.iterdir()) == []
    assert caught.value.retryable
    store.folder.rmdir()
    away.rename(store.folder)
    assert store.get("a/b").body == b"x"
    store.put("c", b"y")


def test_another_store_in_its_place_is_neither_read_nor_written(tmp_path: Path, store: FileStore) -> None:
    store.put("a", b"ours")
    other = make(tmp_path / "other")
    other.put("a", b"theirs")
    ids = [(each.folder / "%store").read_text().split()[2] for each in (store, other)]
    store.folder.rename(tmp_path / "away")
    other.folder.rename(store.folder)
    for request_ in (lambda: store.get("a"), lambda: store.put("b", b""), lambda: list(store.list(""))):
        with pytest.raises(WrongFolder, match=f"expected store {ids[0]} in .*, found store {ids[1]}"):
            request_()
    assert [found.key for found in make(store.folder).list("")] == ["a"]


def test_a_write_that_the_folder_vanishes_from_is_not_made(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the new file and its rename: at the latest moment, the folder is locked."""
    store.put("a/b", b"x")
    away = store.folder.parent / "away"

    def vanish(*_: object) -> None:
        store.folder.rename(away)

    monkeypatch.setattr(file_module, "_check", vanish)
    with pytest.raises(WrongFolder):
        store.put("a/b", b"y")
    monkeypatch.undo()
    away.rename(store.folder)
    assert store.get("a/b").body == b"x"


def test_a_folder_without_an_id_is_read_and_its_first_write_gives_it_one(store: FileStore) -> None:
    store.put("a", b"x")
    (store.folder / "%store").unlink()
    here = make(store.folder)
    assert here.get("a").body == b"x"
    assert [found.key for found in here.list("")] == ["a"]
    with pytest.raises(KeyMissing):
        here.get("b")
    assert not (store.folder / "%store").exists()
    here.put("b", b"y")
    assert re.fullmatch(r"accel-store 1 [0-9a-f]{32}\n", (store.folder / "%store").read_text())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_named_with_the_folder_and_nothing_of_the_write_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = make(tmp_path / "s", durable=True)
    store.put("a", b"x")

    def full(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    for _ in range(3):
        with pytest.raises(StoreFull, match=f"{os.strerror(number)}: '{store.folder}'"):
            store.put("b", b"x")
    assert list((store.folder / "%new").iterdir()) == []


def test_a_part_that_does_not_fit_leaves_nothing(store: FileStore) -> None:
    upload = store.start_multipart("a")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(StoreFull, match="File too large"):
            upload.upload_part(1, bytes(2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((store.folder / "%new").iterdir()) == []
    receipt = upload.upload_part(1, b"x")
    assert upload.complete([receipt]) == store.get("a").etag, "it has the room of the one that did not fit"


def test_the_reserve_is_given_up_once_and_kept_again_by_the_next_process(store: FileStore) -> None:
    store.put("a", b"x")
    reserve = store.folder / "%reserve"
    assert reserve.stat().st_blocks * 512 >= file_module.RESERVE_BYTES
    assert [store.give_up_reserve() for _ in range(2)] == [True, False]
    store.put("a", b"y")
    assert not reserve.exists()
    make(store.folder).put("a", b"z")
    assert reserve.exists()
    assert [found.key for found in store.list("")] == ["a"]


PARTS = st.sampled_from(["", "a", "b", "a-", "a0", ".", "..", "%", "ü", "x" * 63, "x" * 64, "x" * 64 + "-", "x" * 129])
KEYS = st.lists(PARTS, min_size=1, max_size=4).map("/".join).filter(bool)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(KEYS, max_size=8), st.one_of(KEYS, st.just("")), st.one_of(KEYS, st.just("")), st.integers(0, 3))
def test_listings_are_those_of_a_store_in_memory(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str], prefix: str, after: str, deleted: int
) -> None:
    here, model = make(tmp_path_factory.mktemp("store")), MemoryStore()
    for key in keys:
        for each in (here, model):
            each.put(key, key.encode())
    for each in (here, model):
        each.delete_many(keys[:deleted])
    for cut in (prefix, prefix[:1], prefix[:65]):
        for start in (after, after[:65]):
            expected = [(found.key, found.etag, found.size_bytes) for found in model.list(cut, start)]
            assert [(found.key, found.etag, found.size_bytes) for found in here.list(cut, start)] == expected
            page, whole = here.list_page(cut, start, 2), model.list_page(cut, start, 2)
            assert ([found.key for found in page.objects], page.more) == (
                [found.key for found in whole.objects],
                whole.more,
            )
