"""Finding and opening single objects to inspect them: by id, by key, or as a local file.

A lookup uses the sizes in the image. Here only a name is given, so the size comes from the store, and the footer is
kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Protocol

from accel.cli.options import Place
from accel.rendering import Output
from loaders.errors import CorruptObject
from loaders.format import (
    FOOTER_SIZE_BYTES,
    BlockIndex,
    CompositeObject,
    Footer,
    MissingBytes,
    decode_composite,
    decode_footer,
    open_tail,
)
from loaders.object_index import INDEX_SIZE_BYTES_MAX
from loaders.store import Fetched

TAIL_SIZE_BYTES = 64 << 10
"""Read from the end at first: the index of 1,800 rows."""


class Readable(Protocol):
    """A source that is read by key: any store, or local files."""

    def get(self, key: str) -> Fetched:
        """A whole object."""
        ...

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """Bytes [start, end)."""
        ...

    def get_tail(self, key: str, length: int) -> Fetched:
        """The last bytes."""
        ...


class LocalFiles:
    """Files read like objects; the key is the path. Threads: any."""

    def get(self, key: str) -> Fetched:
        """See `ObjectStore.get`."""
        body = Path(key).read_bytes()
        return Fetched(body, "", len(body))

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        with Path(key).open("rb") as file:
            size_bytes = file.seek(0, 2)
            file.seek(start)
            return Fetched(file.read(end - start), "", size_bytes, start)

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        size_bytes = Path(key).stat().st_size
        start = max(0, size_bytes - length)
        return self.get_range(key, start, size_bytes)


class CountedReads:
    """Counts requests and bytes, of a store and of files. Threads: any."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._lock = Lock()
        self.requests = 0
        self.bytes_read = 0

    def get(self, key: str) -> Fetched:
        """See `ObjectStore.get`."""
        return self._counted(lambda: self._source.get(key))

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        return self._counted(lambda: self._source.get_range(key, start, end))

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        return self._counted(lambda: self._source.get_tail(key, length))

    def _counted(self, read: Callable[[], Fetched]) -> Fetched:
        with self._lock:
            self.requests += 1
        fetched = read()
        with self._lock:
            self.bytes_read += len(fetched.body)
        return fetched


@dataclass(frozen=True, slots=True, eq=False)
class LookedInto:
    """The decoded end of an object.

    Args:
        key: the object's key, or the path of the file.
        size_bytes: of the whole object.
        footer: position and size of the index.
        index: the rows; those of a composite object refer to the linked objects.
        composite: the links, if it is composite.
        requests: the requests that were sent.
        bytes_read: the bytes that they returned.
    """

    key: str
    size_bytes: int
    footer: Footer
    index: BlockIndex
    composite: CompositeObject | None
    requests: int
    bytes_read: int


def look_into(source: Readable, key: str) -> LookedInto:
    """Open the index of an object of any kind; one request, or two if the index is large.

    Raises:
        CorruptObject: it does not have the format.
        StoreError, OSError: it cannot be read.
    """
    tail = source.get_tail(key, TAIL_SIZE_BYTES)
    size_bytes = tail.object_size_bytes
    footer = decode_footer(tail.body, object_size_bytes=size_bytes, key=key)
    if footer.composite:
        whole = source.get(key)
        composite = decode_composite(whole.body, key=key)
        bytes_read = len(tail.body) + len(whole.body)
        return LookedInto(key, size_bytes, footer, composite.index, composite, 2, bytes_read)
    index = open_tail(tail.body, object_size_bytes=size_bytes, key=key)
    if not isinstance(index, MissingBytes):
        return LookedInto(key, size_bytes, footer, index, None, 1, len(tail.body))
    before = _fetch(source, key, index, size_bytes)
    complete = open_tail(before + tail.body, object_size_bytes=size_bytes, key=key)
    if isinstance(complete, MissingBytes):
        found = f"only {len(before)} of them"
        raise CorruptObject(key, size_bytes, expected=f"bytes [{index.start}, {index.end})", found=found)
    return LookedInto(key, size_bytes, footer, complete, None, 2, len(tail.body) + len(before))


def _fetch(source: Readable, key: str, missing: MissingBytes, size_bytes: int) -> bytes:
    wanted = missing.end - missing.start
    if wanted > INDEX_SIZE_BYTES_MAX - FOOTER_SIZE_BYTES:
        expected = f"an index of at most {INDEX_SIZE_BYTES_MAX} bytes"
        raise CorruptObject(key, size_bytes, expected=expected, found=f"{wanted} bytes more")
    return source.get_range(key, missing.start, missing.end).body


@dataclass(frozen=True, slots=True)
class Target:
    """One named object; ``object_id`` is None if the name does not contain it."""

    key: str
    source: Readable
    object_id: int | None = None
    is_file: bool = False


class Targets:
    """Resolves names to objects. Opens the store only if a name needs it.

    A name of digits is an id (write ./42 for a file of that name), the name of an existing file is that file, and any
    other name is a key.

    Threads: one at a time.
    """

    def __init__(self, place: Place, output: Output) -> None:
        self._place = place
        self._output = output
        self._files = CountedReads(LocalFiles())
        self._store: CountedReads | None = None

    @property
    def reads(self) -> tuple[int, int]:
        """Requests and bytes so far, files included."""
        sources = [self._files, *([self._store] if self._store else [])]
        return sum(source.requests for source in sources), sum(source.bytes_read for source in sources)

    @property
    def store(self) -> Readable:
        """The bucket.

        Raises:
            click.UsageError: none is named.
        """
        if self._store is None:
            self._store = CountedReads(self._place.store.open())
        return self._store

    def find(self, name: str) -> Target:
        """The object of a name; sends no request.

        Raises:
            click.UsageError: the name needs a bucket, and none is named.
        """
        if name.isascii() and name.isdigit():
            return self.of_id(int(name))
        if Path(name).is_file():
            return Target(name, self._files, is_file=True)
        return Target(name, self.store, self._place.layout.parse_object_key(name))

    def of_id(self, object_id: int) -> Target:
        """The object of an id."""
        return Target(self._place.layout.object_key(object_id), self.store, object_id)
