"""A store in a folder of this machine: for experiments, and for data that is kept on disk without a server.

    open_store("file:///tmp/accel")

It keeps the promises of S3 for all threads and processes of one machine. An object is one file, with a header before
the body, padded with spaces and ended by a line feed:

    96 bytes    accel-object 1 <ETag> <bytes of the body>
    256 bytes   accel-object 2 <ETag> <bytes of the body> <mark>       only with a mark

ETags are those of S3: the MD5 of the bytes, and for a multipart object the MD5 of its parts' MD5s.

A write first creates a file in `%new`. Then it locks the folder of the object (`flock` of the folder itself), compares
the condition with the header of the existing file, and renames the new file over the old one. A reader opens either the
old or the new file, whole. The lock is held for the comparison, the rename and, with `durable`, the folder's `fsync`;
the kernel releases it when a process dies: a killed writer leaves at most a file in `%new`, which is deleted a day
later. A folder that became empty is deleted; a writer that had locked it starts again, as no file can be renamed into
it.

What is made below the store's folder has the rights of the folder that it is in, whatever the umask: a folder its mode,
a file its permissions to read (no object is changed in place); both its group, and what root makes its owner, as far as
the system allows.

The first write to a folder gives it an id, in a file `%store`, as `accel-store 1 <32 hexadecimal digits>` and a line
feed. A store never makes its folder twice: once it has seen the id, each request first compares the file with it, and a
write once more before its rename. So a folder on a volume that is not mounted, or another store in its place, is
`WrongFolder`, and nothing is written there; requests go on as soon as the folder has the id again. The id is compared,
not the device or the inode: these change when a volume is mounted again, in containers and on network file systems. A
copy of a folder has the id of the original: an older copy is found by the versions of the catalog's keys.

`%reserve` takes up space that a collector gives up when the disk is full (`give_up_reserve`).

A listing is complete, or an error: a collector takes for deleted what it leaves out. What cannot be read, links to
nothing and links that are not followed are passed over, and named, only where no key of ours could begin so
(`layout.may_be_ours`); so are files that no key is written as. Links are followed that lead out of the store's folder.

The file system must have `flock`, atomic renames and case-sensitive names. Those of Linux (ext4, xfs, btrfs, tmpfs,
overlay) have them; a file system that ignores case is refused. A network file system (NFS, SMB) may lock each machine
separately and return an old file for seconds: then conditional writes of two machines do not exclude each other. Use it
from one machine, or use an S3 server.

**Names of files.** A key is divided at its slashes; each part but the last is a folder, the last one is a file. So
`accel/format` is the file `accel/format%object`. Bytes of a part's UTF-8 form other than ASCII letters, digits and
`-_.~!@,=+:;` are written as `%XX`. Names with another meaning have a `%` that is not followed by two hexadecimal
digits:

    | name            | meaning                                                                                     |
    |-----------------|---------------------------------------------------------------------------------------------|
    | `...%object`    | an object; the key `a` and the folder of `a/b` therefore never have the same name           |
    | `%empty`        | the folder of an empty part, as in `a//b`                                                   |
    | `...%more`      | a folder for the rest of a part after its first 64 bytes: a file name has at most 255 bytes |
    | `%new`          | at the top of a store: the folder of files that are being written                           |
    | `%store`        | likewise: the file with the store's id                                                      |
    | `%reserve`      | likewise: a file that is deleted when a collector needs space                               |
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import re
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

from loaders.errors import AccessDenied, CorruptObject, KeyMissing, WrongFolder
from loaders.layout import ACCEL_PREFIX, may_be_ours
from loaders.lifetime import PerProcess
from loaders.store.base import (
    ALWAYS,
    LIST_PAGE_KEYS_MAX,
    CreateOnly,
    DeleteFailures,
    Fetched,
    IfMatch,
    ListPage,
    ObjectInfo,
    PagedListing,
    check_key,
    check_page_limit,
    check_range,
    check_size,
    check_tail,
    delete_each,
    metadata_of,
)
from loaders.store.error_table import store_error, store_error_of
from loaders.store.spooled import SpooledUpload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from loaders.store.base import Body, Condition

HEADER_BYTES = 96
MARKED_HEADER_BYTES = 256
_MAGIC = b"accel-object "
LOCK_POLL_SECONDS = 0.002
LOCK_POLLS_MAX = 15_000
"""Half a minute: then the holder of a lock is assumed to be stuck."""

COMMITS_MAX = 64
"""The number of times that a writer starts again because its folder was deleted meanwhile."""

NOTICES_MAX = 5
"""The number of notices of a process: an entry of others may be in each folder."""

logger = logging.getLogger(__name__)

STALE_SECONDS = 86_400.0
"""The age at which files of killed writers are deleted: no upload takes that long."""

RESERVE_BYTES = 256 << 10
"""The size of the file that is given up when the disk is full: space for a node's list of some 4,000 objects."""

_STORE_ID = re.compile(rb"accel-store 1 ([0-9a-f]{32})\n")
_STORE_ID_BYTES = 47


class FileStore(PagedListing):
    """Objects in a folder. Threads and processes of one machine: any, at once. May be pickled.

    Args:
        folder: its absolute path; the first write creates it.
        sleep: waits for this number of seconds, while another writer holds a folder's lock.
        durable: whether a write survives a loss of power once it returns (`fsync` of the file and its folder).
            Otherwise it survives only the end of the process.

    Every method raises WrongFolder if the folder does not have the id (any more).
    """

    can_copy_parts = True
    keeps_conditions = True

    def __init__(self, folder: Path, *, sleep: Callable[[float], object], durable: bool = True) -> None:
        if not folder.is_absolute():
            raise ValueError(f"expected the absolute path of a folder, found {str(folder)!r}")
        self.folder = folder
        self.durable = durable
        self._sleep = sleep
        self._id: str | None = None
        self._prepared: PerProcess[list[Path]] = PerProcess("a folder", list)
        self._noticed: PerProcess[dict[Path, str]] = PerProcess("what was met in a folder", dict)

    def __reduce__(self) -> tuple[Callable[..., FileStore], tuple[object, ...]]:
        return _restored, (self.folder, self._sleep, self.durable, self._id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def give_up_reserve(self) -> bool:
        """See `FolderStore.give_up_reserve`."""
        with self._errors("delete", RESERVE), suppress(FileNotFoundError):
            (self.folder / RESERVE).unlink()
            return True
        return False

    def notices(self) -> list[str]:
        """See `FolderStore.notices`; the first `NOTICES_MAX`."""
        return list(self._noticed().values())

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """See `ObjectStore.get`."""
        with self._opened("get", key) as found:
            check_size(key, found.size_bytes, size_bytes_max)
            return found.read(0, found.size_bytes)

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        check_range(start, end)
        with self._opened("get_range", key) as found:
            if start >= found.size_bytes:
                detail = f"expected a start below the size of {found.size_bytes} bytes, found {start}"
                raise store_error("get_range", key, detail, code="InvalidRange", status=416)
            return found.read(start, min(end, found.size_bytes))

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        check_tail(length)
        with self._opened("get_tail", key) as found:
            return found.read(max(0, found.size_bytes - length), found.size_bytes)

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """See `ObjectStore.get_if_changed`."""
        with self._opened("get_if_changed", key) as found:
            if found.etag == etag:
                return None
            check_size(key, found.size_bytes, size_bytes_max)
            return found.read(0, found.size_bytes)

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """See `ObjectStore.put`. WriteConflict only if other processes delete the key's folder again and again."""
        check_key("put", key)
        metadata_of(mark)
        etag = _md5(body).hexdigest()
        with self._errors("put", key, missing="ServiceUnavailable"):
            self._write(key, [body], _header(etag, len(body), mark), condition)
        return etag

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        names, name = place_of(key)
        with suppress(KeyMissing), self._errors("delete", key):
            with self._locked(self.folder.joinpath(*names)) as folder:
                os.unlink(name, dir_fd=folder)
                self._settle(folder)
            self._prune(names)

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """See `ObjectStore.delete_many`."""
        return delete_each(keys, self.delete)

    def list_page(
        self,
        prefix: str,
        start_after: str = "",
        limit: int = LIST_PAGE_KEYS_MAX,
        token: str = "",  # noqa: ARG002 - pages have none
    ) -> ListPage:
        """See `ObjectStore.list_page`. It reads the names of all folders on the path, and the headers of the page."""
        check_page_limit(limit)
        with self._errors("list", prefix):
            page: list[ObjectInfo] = []
            for key, path in self._keys(prefix, start_after):
                if len(page) == limit:
                    return ListPage(page, more=True)
                try:
                    with self._opened("list", key, path) as found:
                        page.append(ObjectInfo(key, found.size_bytes, found.etag, found.modified_seconds))
                except KeyMissing:
                    continue  # it was deleted after its folder was read
                except AccessDenied as error:
                    self._pass_over(prefix, key.encode(), path, error)
            self._check_root("list", prefix)  # if it vanished meanwhile, this is not all
            return ListPage(page, more=False)

    def start_multipart(self, key: str, *, mark: str | None = None) -> SpooledUpload:
        """See `ObjectStore.start_multipart`. Its parts are in a file without a name, in the same file system."""
        check_key("start_multipart", key)
        metadata_of(mark)
        with self._errors("start_multipart", key, missing="ServiceUnavailable"):
            file = tempfile.TemporaryFile(dir=self._new())  # noqa: SIM115 - closed at the end of the upload
        return SpooledUpload(key, file, partial(self._complete, key, mark), self.get_range)

    def _complete(self, key: str, mark: str | None, content: Iterable[bytes], etag: str, size_bytes: int) -> str:
        with self._errors("complete", key, missing="NoSuchUpload"):
            self._write(key, content, _header(etag, size_bytes, mark))
        return etag

    def abort_multipart(self, key: str, upload_id: str) -> None:
        """See `ObjectStore.abort_multipart`: the parts of an upload are gone with its process."""

    @contextmanager
    def _errors(self, operation: str, key: str, *, missing: str = "NoSuchKey") -> Iterator[None]:
        """Check the folder; convert errors of the file system to errors of stores. The original is the cause."""
        try:
            self._check_root(operation, key)
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            self._check_root(operation, key)  # it may have vanished meanwhile
            if link := _dangling(str(error.filename)):
                raise store_error_of(operation, key, link) from error
            raise store_error(operation, key, f"no such file: {error.filename}", code=missing, status=404) from error
        except OSError as error:
            if error.errno in _CODES:
                code, status = _CODES[error.errno]
                detail = _told(error) if error.filename else f"{error}: {str(self.folder)!r}"
                raise store_error(operation, key, detail, code=code, status=status) from error
            raise store_error_of(operation, key, error) from error

    def _check_root(self, operation: str, key: str) -> None:
        expected, found = self._id, self._found_id()  # in this order: another thread may be making the id
        if expected is None:
            self._id = self._id or found
        elif found != expected:
            there = f"store {found}" if found else f"no file {STORE} with its id"
            detail = f"expected store {expected} in the folder {str(self.folder)!r}, found {there}"
            raise WrongFolder(operation, key, detail)

    def _found_id(self) -> str | None:
        try:
            with _open(self.folder / STORE) as descriptor:
                found = _STORE_ID.fullmatch(os.read(descriptor, _STORE_ID_BYTES + 1))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found[1].decode() if found else None

    @contextmanager
    def _opened(self, operation: str, key: str, path: Path | None = None) -> Iterator[_Opened]:
        with self._errors(operation, key):
            names, name = place_of(key)
            with _open(path or self.folder.joinpath(*names, name)) as descriptor:
                yield _Opened(key, descriptor)

    def _keys(self, prefix: str, start_after: str) -> Iterator[tuple[str, Path]]:
        """Keys with their files, in the order of their bytes. Folders may be deleted meanwhile."""
        # The complete parts of the prefix are a folder: its neighbours need not be read.
        base, slash, _ = prefix.rpartition("/")
        start = self.folder.joinpath(*(place_of(base + slash)[0] if slash else []))
        wanted, after, root = prefix.encode(), start_after.encode(), Path(os.path.realpath(self.folder))
        rest = [((base + slash).encode(), start, False)]
        while rest:
            text, path, is_object = rest.pop()
            if is_object:
                yield text.decode(), path
                continue
            try:
                with os.scandir(path) as names:
                    found = [(path / each.name, *_meaning(each, root)) for each in names]
            except PermissionError as error:
                self._pass_over(prefix, text, path, error)
                continue
            except (FileNotFoundError, NotADirectoryError):
                if link := _dangling(path):
                    raise link from None
                continue
            inside = []
            for place, entry, why in found:
                if entry is None:
                    self._pass_over(prefix, None, place, why)
                elif _may_list(whole := text + entry.text, wanted, after, is_object=entry.is_object):
                    if why is None:
                        inside.append((whole, place, entry.is_object))
                    else:
                        self._pass_over(prefix, whole, place, why)
            rest.extend(sorted(inside, key=lambda each: (each[0], not each[2]), reverse=True))

    def _pass_over(self, prefix: str, text: bytes | None, path: Path, why: Exception | None) -> None:
        """Leave out what cannot be listed, if no key that was asked for may begin with this text; else raise.

        A collector takes for deleted what a listing leaves out.
        """
        foreign = prefix and not prefix.startswith(ACCEL_PREFIX)
        if why and text is not None and (foreign or may_be_ours(text.decode(errors="replace"))):
            raise why
        if why and not path.name.startswith("%"):  # names of the store itself
            self._notice(path, f"passed over: {_told(why)}")

    def _notice(self, path: Path, text: str) -> None:
        noticed = self._noticed()
        if len(noticed) < NOTICES_MAX and path not in noticed:
            noticed[path] = text
            more = "; no more of its kind are logged" if len(noticed) == NOTICES_MAX else ""
            logger.warning("%s%s", text, more)

    def _write(self, key: str, content: Iterable[Body], header: bytes, condition: Condition = ALWAYS) -> None:
        folder = self.folder.joinpath(*place_of(key)[0])
        new = _written(self._new(), chain([header], content), folder, durable=self.durable)
        try:
            self._commit(key, new, condition)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def _commit(self, key: str, new: Path, condition: Condition) -> None:
        names, name = place_of(key)
        path = self.folder.joinpath(*names)
        for _ in range(COMMITS_MAX):
            try:
                self._make(path)
                with self._locked(path) as folder:
                    _check(condition, key, name, folder)
                    # The new file, the locked folder and this id are of one volume, or the rename fails.
                    self._check_root("put", key)
                    os.rename(new, name, dst_dir_fd=folder)
                    self._settle(folder)
            except FileNotFoundError:
                if not new.exists() or _dangling(path):
                    raise
                self._sleep(LOCK_POLL_SECONDS)  # a folder of the path was deleted meanwhile, as it was empty
            else:
                return
        detail = f"its folder was deleted {COMMITS_MAX} times before the object was written"
        raise store_error("put", key, detail, code="OperationAborted", status=409)

    @contextmanager
    def _locked(self, path: Path) -> Iterator[int]:
        """Lock a folder and yield its descriptor. FileNotFoundError if it does not exist."""
        with _open(path, os.O_DIRECTORY) as descriptor:
            for _ in range(LOCK_POLLS_MAX):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except (BlockingIOError, InterruptedError):
                    self._sleep(LOCK_POLL_SECONDS)
                except OSError as error:
                    if error.errno not in _UNABLE:
                        raise
                    raise OSError(
                        errno.ENOTSUP, f"expected a file system with flock, found {error}; {_ELSE}", str(path)
                    ) from error
            else:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock of the folder", str(path))
            try:
                yield descriptor
            except PermissionError as error:  # of a name in the folder: whose the folder is decides
                raise PermissionError(error.errno, error.strerror, str(path)) from error
            finally:
                # Explicitly: a process that was forked meanwhile has the descriptor, too, and would keep the lock.
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _settle(self, folder: int) -> None:
        try:
            if self.durable:
                os.fsync(folder)
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
            told = f"{error}: its folders cannot be synced, a loss of power may undo writes"
            self._notice(self.folder, f"{str(self.folder)!r}: {told}; {_ELSE}")

    def _make(self, path: Path) -> None:
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            with suppress(FileExistsError):
                self._make_folder(folder)
            with _open(folder.parent, os.O_DIRECTORY) as above:
                self._settle(above)

    def _make_folder(self, folder: Path) -> None:
        """Make one folder; one that is for keys appears with its rights, which others may take over at once."""
        new = self.folder / NEW
        if new not in folder.parents and self.folder in folder.parents and new.is_dir():
            made = Path(tempfile.mkdtemp(dir=new))
            try:
                _follow_folder(made, folder.parent)
                made.rename(folder)
            except OSError as error:
                made.rmdir()
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):  # there is something
                    raise
            return
        folder.mkdir()
        if self.folder in folder.parents:
            _follow_folder(folder, folder.parent)

    def _prune(self, names: Sequence[str]) -> None:
        for count in range(len(names), 0, -1):
            try:
                self.folder.joinpath(*names[:count]).rmdir()
            except OSError:
                return  # it is not empty, or another process deleted it

    def _new(self) -> Path:
        """The folder of files that are being written; the first write of a process creates it and deletes old files."""
        prepared = self._prepared()
        new = self.folder / NEW
        if not prepared or self._id is None or not new.is_dir():
            self._make(new)
            _check_case(new)
            _sweep(new)
            if self._id is None:
                self._identify(new)
            with suppress(OSError):  # too little space for it
                if not (self.folder / RESERVE).exists():
                    _written(new, [bytes(RESERVE_BYTES)], new, durable=False).rename(self.folder / RESERVE)
            prepared.append(new)
        return new

    def _identify(self, new: Path) -> None:
        with self._locked(self.folder) as folder:
            if self._found_id() is None:
                header = f"accel-store 1 {os.urandom(16).hex()}\n".encode()
                _written(new, [header], new, durable=self.durable).rename(self.folder / STORE)
                self._settle(folder)
            self._id = self._found_id()


def _restored(folder: Path, sleep: Callable[[float], object], durable: bool, store_id: str | None) -> FileStore:
    store = FileStore(folder, sleep=sleep, durable=durable)
    store._id = store_id  # noqa: SLF001 - the function is a part of the class
    return store


class _Opened:
    """A file that is open for reading: one version of an object, also if it is replaced meanwhile. One thread.

    Raises:
        CorruptObject: it is not an object of a `FileStore`, or is truncated.
    """

    def __init__(self, key: str, descriptor: int) -> None:
        facts = os.fstat(descriptor)
        if not S_ISREG(facts.st_mode):
            raise CorruptObject(key, facts.st_size, expected="a file", found=f"one of mode {facts.st_mode:o}")
        self._descriptor = descriptor
        self.modified_seconds = facts.st_mtime
        start = os.pread(descriptor, MARKED_HEADER_BYTES, 0)
        self._start = MARKED_HEADER_BYTES if start.startswith(_MAGIC + b"2 ") else HEADER_BYTES
        self.size_bytes = max(0, facts.st_size - self._start)
        header = start[: self._start]
        words = [word.decode(errors="replace") for word in header.split()]
        self.etag = words[2] if len(words) >= 4 else ""
        self.mark = words[4] if len(words) == 5 else None
        if header != _header(self.etag, self.size_bytes, self.mark):
            expected = f"a header for {self.size_bytes} bytes: {_MAGIC.decode()}1 <ETag> {self.size_bytes}"
            raise CorruptObject(key, facts.st_size, expected=expected, found=repr(header))

    def read(self, start: int, end: int) -> Fetched:
        """Read bytes `[start, end)`, which are within the object."""
        pieces = []
        at = start
        while at < end and (piece := os.pread(self._descriptor, end - at, self._start + at)):
            pieces.append(piece)
            at += len(piece)
        if at < end:
            raise OSError(errno.EIO, f"expected {end - start} bytes, found {at - start}")
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return Fetched(body, self.etag, self.size_bytes, start, self.mark)


def _may_list(text: bytes, prefix: bytes, after: bytes, *, is_object: bool) -> bool:
    """Whether a listing may contain this key of an object, or keys in the folder of this text."""
    if is_object:
        return text > after and text.startswith(prefix) and _is_utf8(text)
    return (text.startswith(prefix) or prefix.startswith(text)) and (text > after or after.startswith(text))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False  # a file of another program: no key is converted to this name
    return True


def _meaning(found: os.DirEntry[str], root: Path) -> tuple[Entry | None, Exception | None]:
    """What a name in a folder means, or would mean, and why it cannot be that; nothing if it was deleted meanwhile."""
    try:
        is_folder = found.is_dir()
        if not is_folder and not found.is_file():
            if not os.path.lexists(found.path):
                return None, None
            why = _dangling(found.path) or OSError(errno.EINVAL, "neither a folder nor a file", found.path)
        elif found.is_symlink() and not _leads_out(Path(found.path), root):
            why = OSError(errno.ELOOP, "a link into the store, or from one linked folder to another", found.path)
        else:
            entry = entry_of(found.name, is_folder=is_folder)
            return entry, None if entry else ValueError(f"no key has this name: {found.path!r}")
    except OSError as error:  # a link in a circle, or through a folder that must not be entered
        why = error
    return entry_of(found.name, is_folder=True) or entry_of(found.name, is_folder=False), why


def _leads_out(link: Path, root: Path) -> bool:
    """Whether a link in the store leads out of it: then an object has one key, and a listing an end."""
    here, there = (Path(os.path.realpath(each)) for each in (link.parent, link))
    return root in (here, *here.parents) and root not in (there, *there.parents) and there not in root.parents


def _dangling(path: str | Path) -> OSError | None:
    """The error of a path that leads through a link to nothing, which is not a missing file."""
    for each in (Path(path), *Path(path).parents):
        if os.path.lexists(each):
            is_there = os.path.exists(each)  # noqa: PTH110 - Path's own raises where it may not look
            return (
                None if is_there else OSError(errno.ENXIO, f"{str(each)!r} is a link to nothing: is its disk mounted?")
            )
    return None


@contextmanager
def _open(path: str | Path, flags: int = 0, folder: int | None = None) -> Iterator[int]:
    """Open a file or a folder to read; once more if it was replaced on a server of files. A pipe blocks no caller."""
    flags |= os.O_RDONLY | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, dir_fd=folder)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        descriptor = os.open(path, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check(condition: Condition, key: str, name: str, folder: int) -> None:
    """Check that a write's condition holds; called while the folder is locked."""
    if not isinstance(condition, CreateOnly | IfMatch):
        return
    etag = None
    with suppress(FileNotFoundError), _open(name, folder=folder) as descriptor:
        etag = _Opened(key, descriptor).etag
    lost = etag is not None if isinstance(condition, CreateOnly) else etag != condition.etag
    if lost:
        detail = f"expected {condition}, found {f'ETag {etag}' if etag else 'no object'}"
        raise store_error("put", key, detail, code="PreconditionFailed", status=412, conditional=True)


def _check_case(new: Path) -> None:
    if (new.parent / NEW.upper()).exists():
        raise PermissionError(errno.ENOTSUP, "expected a file system with case-sensitive names", str(new.parent))


def _sweep(new: Path) -> None:
    """Delete old files of killed writers. Ages are by the file system's clock."""
    with tempfile.TemporaryFile(dir=new) as file:
        now = os.fstat(file.fileno()).st_mtime
    for path in new.iterdir():
        # A folder is not ours; a file may be another user's, in a folder that only lets owners delete.
        with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
            if now - path.stat().st_mtime >= STALE_SECONDS:
                path.unlink()


def _follow_folder(new: Path, folder: Path) -> None:
    with _open(new, os.O_DIRECTORY | os.O_NOFOLLOW) as descriptor:
        _follow(descriptor, folder)


def _follow(new: int, folder: Path) -> None:
    """Give a new file or folder the rights of the folder that it is in, or of the nearest one that exists.

    By its descriptor: a name could be a link by now, and root would give away what it leads to.
    """
    above, mine = _nearest(folder), os.fstat(new)
    mode = S_IMODE(above.st_mode)
    try:
        if (above.st_uid, above.st_gid) != (mine.st_uid, mine.st_gid):
            os.fchown(new, above.st_uid if os.geteuid() == 0 else -1, above.st_gid)
    except OSError:
        mode = mode & ~0o070 | (mode & 0o007) << 3  # its group is another one
    with suppress(OSError):  # a file system without modes
        os.fchmod(new, mode if S_ISDIR(mine.st_mode) else 0o600 | mode & 0o044)


def _nearest(path: Path) -> os.stat_result:
    """What is known of a path, or of the nearest folder above it that can be looked at."""
    for each in (path, *path.parents):
        with suppress(OSError):
            return each.stat()
    return path.stat()


def _written(folder: Path, content: Iterable[Body], like: Path, *, durable: bool) -> Path:
    """Write a file with another name than all others, and the rights of `like`; none is left if that fails."""
    descriptor, name = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _follow(descriptor, like)
            file.writelines(content)
            file.flush()
            if durable:
                os.fsync(descriptor)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _header(etag: str, size_bytes: int, mark: str | None) -> bytes:
    if mark is None:
        return (_MAGIC + f"1 {etag} {size_bytes}".encode()).ljust(HEADER_BYTES - 1) + b"\n"
    return (_MAGIC + f"2 {etag} {size_bytes} {mark}".encode()).ljust(MARKED_HEADER_BYTES - 1) + b"\n"


_UNABLE = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""How file systems say that they have no locks, or no `fsync` of a folder."""

_ELSE = "keep the store on a local disk, or on an S3 server"

_CODES = {
    errno.ENAMETOOLONG: ("KeyTooLongError", 400),
    errno.EACCES: ("AccessDenied", 403),
    errno.EPERM: ("AccessDenied", 403),
    errno.EROFS: ("AccessDenied", 403),
    errno.ENOSPC: ("InsufficientStorage", 507),
    errno.EDQUOT: ("InsufficientStorage", 507),
    errno.EFBIG: ("InsufficientStorage", 507),
    errno.ENOTSUP: ("NotImplemented", 501),
    errno.EISDIR: ("NotImplemented", 501),
    errno.ELOOP: ("NotImplemented", 501),
    errno.EXDEV: ("NotImplemented", 501),
}


def _told(error: Exception) -> str:
    """An error of the file system, and whose the file is."""
    if not isinstance(error, OSError):
        return str(error)
    if error.errno == errno.EXDEV:
        return f"{error}: expected one file system for the whole store, a linked folder of another is only read"
    if error.errno not in (errno.EACCES, errno.EPERM) or not str(error.filename).startswith("/"):
        return str(error)
    facts = _nearest(Path(error.filename))
    whose = f"user {facts.st_uid}, group {facts.st_gid}, mode {S_IMODE(facts.st_mode):04o}"
    return f"{error} ({whose}; this is user {os.geteuid()})"


def _md5(content: Body) -> hashlib._Hash:
    return hashlib.md5(content, usedforsecurity=False)


OBJECT = "%object"
EMPTY = "%empty"
MORE = "%more"
NEW = "%new"
STORE = "%store"
RESERVE = "%reserve"

_CHUNK_BYTES = 64
_PLAIN = "!@,=+:;"
_QUOTED = re.compile(r"(?:[A-Za-z0-9_.~!@,=+:;-]|%[0-9A-F]{2})*")


@dataclass(frozen=True, slots=True)
class Entry:
    """The meaning of one name in a folder.

    Attributes:
        text: the end of an object's key, or the next bytes of the keys in a folder. In UTF-8.
        name: the name in the file system.
        is_object: whether it is an object.
    """

    text: bytes
    name: str
    is_object: bool


def place_of(key: str) -> tuple[list[str], str]:
    """The folders of a key, from the top, and the name of its file.

    >>> place_of("accel/format")
    (['accel'], 'format%object')
    >>> place_of("a//..")
    (['a', '%empty'], '%2E%2E%object')
    """
    *parts, last = key.encode().split(b"/")
    folders = [name for part in parts for name in _folders(part)]
    chunks, rest = _chunks(last)
    return [*folders, *chunks], _quoted(rest) + OBJECT


def entry_of(name: str, *, is_folder: bool) -> Entry | None:
    """The meaning of a name; None if no key of a store has it. Each text has exactly one name.

    >>> entry_of("a%20b%object", is_folder=False)
    Entry(text=b'a b', name='a%20b%object', is_object=True)
    >>> entry_of("a", is_folder=True), entry_of("a", is_folder=False)
    (Entry(text=b'a/', name='a', is_object=False), None)
    """
    if not is_folder:
        end = _text(name, OBJECT)
        return Entry(end, name, is_object=True) if end is not None and len(end) < _CHUNK_BYTES else None
    if name == EMPTY:
        return Entry(b"/", name, is_object=False)
    chunk = _text(name, MORE)
    if chunk is not None:
        return Entry(chunk, name, is_object=False) if len(chunk) == _CHUNK_BYTES else None
    part = _text(name, "")
    return Entry(part + b"/", name, is_object=False) if part and len(part) < _CHUNK_BYTES else None


def _text(name: str, suffix: str) -> bytes | None:
    """The text of a name with this suffix; None if no text is converted to this name."""
    quoted = name.removesuffix(suffix)
    if not name.endswith(suffix) or not _QUOTED.fullmatch(quoted):
        return None
    text = unquote_to_bytes(quoted)
    return text if _quoted(text) == quoted else None


def _folders(part: bytes) -> list[str]:
    chunks, rest = _chunks(part)
    return [*chunks, _quoted(rest) or EMPTY]


def _chunks(part: bytes) -> tuple[list[str], bytes]:
    chunks = []
    while len(part) >= _CHUNK_BYTES:
        chunks.append(_quoted(part[:_CHUNK_BYTES]) + MORE)
        part = part[_CHUNK_BYTES:]
    return chunks, part


def _quoted(part: bytes) -> str:
    text = quote(part, safe=_PLAIN)
    return text if text.strip(".") else text.replace(".", "%2E")  # "." and ".." are reserved names
