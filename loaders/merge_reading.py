"""Opens the objects that are to be merged.

    a small group      one request an object brings all of it, its index included
    a large group      one request brings the index (two where its size is not known and the guess falls short);
                       the blocks are read later, band by band

Objects that link others (composite ones) are refused: their blocks are not in them. A node's list never has any.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from loaders.errors import CorruptObject, FormatError, RangeInvalid
from loaders.format import (
    FOOTER_SIZE_BYTES,
    BlockIndex,
    MissingBytes,
    check_tail,
    decode_footer,
    guess_tail_size_bytes,
    open_tail,
    tail_checksum,
)
from loaders.layout import ObjectLayout
from loaders.merge_settings import DEFAULT_SETTINGS, MergeSettings
from loaders.object_index import INDEX_SIZE_BYTES_MAX
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.parallel import map_bounded
from loaders.store import Fetched, ObjectStore


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """An object that is to be merged. Threads: immutable.

    Args:
        ref: the object, with its true sizes and the checksum of its tail.
        key: where it lies.
        index: its rows.
        body: all its bytes, or None if they are to be read band by band.
        requests: what opening it took.
        bytes_read: what opening it fetched.
    """

    ref: ObjectRef
    key: str
    index: BlockIndex
    body: bytes | None
    requests: int
    bytes_read: int

    @property
    def data_size_bytes(self) -> int:
        """Bytes in front of the index."""
        return self.ref.size_bytes - self.index.nbytes - FOOTER_SIZE_BYTES

    def corrupt(self, *, expected: str, found: str) -> CorruptObject:
        """The error that names this object."""
        return CorruptObject(self.key, self.ref.size_bytes, expected=expected, found=found)


def open_sources(
    store: ObjectStore,
    layout: ObjectLayout,
    refs: Sequence[ObjectRef],
    settings: MergeSettings = DEFAULT_SETTINGS,
    *,
    executor: Executor,
) -> list[Source]:
    """Open a group of objects, in their order.

    Requests: one an object; one more where neither the metadata nor the guess told the size of a large index.

    Args:
        store: where the objects lie.
        layout: where in it.
        refs: the objects; whole objects are read if the sizes of all are known and fit one band, and the store is not
            to copy the data itself.
        settings: `band_size_bytes`, `parallel_requests` and `server_side` matter here.
        executor: of threads; runs the requests.

    Raises:
        FormatError: a composite object.
        CorruptObject: an object is not what the format or its metadata says.
        KeyMissing, StoreUnavailable and the like: from the store.
    """
    sizes = [ref.size_bytes for ref in refs]
    copies_itself = settings.server_side and store.can_copy_parts
    whole = UNKNOWN not in sizes and sum(sizes) <= settings.band_size_bytes and not copies_itself
    opener = _Opener(store, layout, whole=whole)
    return map_bounded(executor, opener.open, refs, settings.parallel_requests)


@dataclass(frozen=True, slots=True)
class _Opener:
    store: ObjectStore
    layout: ObjectLayout
    whole: bool

    def open(self, ref: ObjectRef) -> Source:
        key = self.layout.object_key(ref.object_id)
        if ref.is_composite:
            raise _composite(key)
        fetched = self._fetch(ref, key)
        size_bytes = fetched.object_size_bytes
        if ref.size_bytes not in (UNKNOWN, size_bytes):
            expected = f"the {ref.size_bytes} bytes that its metadata says"
            raise CorruptObject(key, size_bytes, expected=expected, found=f"{size_bytes}")
        if decode_footer(fetched.body, object_size_bytes=size_bytes, key=key).composite:
            raise _composite(key)
        index = open_tail(fetched.body, object_size_bytes=size_bytes, key=key)
        requests, tail = 1, fetched.body
        if isinstance(index, MissingBytes):
            index, tail = self._complete(fetched, index, key)
            requests = 2
        checksum = tail_checksum(tail, object_size_bytes=size_bytes, index_size_bytes=index.nbytes)
        check_tail(ref.tail_checksum, checksum, object_size_bytes=size_bytes, key=key)
        body = fetched.body if len(fetched.body) == size_bytes else None
        true_ref = ObjectRef(ref.object_id, size_bytes, index.nbytes, ref.attributes, checksum)
        return Source(true_ref, key, index, body, requests, len(tail))

    def _fetch(self, ref: ObjectRef, key: str) -> Fetched:
        size_bytes = ref.size_bytes
        if self.whole:
            return self.store.get(key)
        if ref.index_size_bytes != UNKNOWN:
            length = ref.index_size_bytes + FOOTER_SIZE_BYTES
        else:
            length = guess_tail_size_bytes(1 << 20 if size_bytes == UNKNOWN else size_bytes)
        if size_bytes == UNKNOWN:
            return self.store.get_tail(key, max(1, length))
        try:
            return self.store.get_range(key, max(0, size_bytes - length), max(1, size_bytes))
        except RangeInvalid as error:
            expected = f"the {size_bytes} bytes that its metadata says"
            raise CorruptObject(key, size_bytes, expected=expected, found="an object that ends sooner") from error

    def _complete(self, tail: Fetched, missing: MissingBytes, key: str) -> tuple[BlockIndex, bytes]:
        size_bytes = tail.object_size_bytes
        if missing.end - missing.start > INDEX_SIZE_BYTES_MAX:
            expected = f"an index of at most {INDEX_SIZE_BYTES_MAX} bytes"
            raise CorruptObject(key, size_bytes, expected=expected, found=f"{missing.end - missing.start} bytes more")
        before = self.store.get_range(key, missing.start, missing.end)
        body = before.body + tail.body
        index = open_tail(body, object_size_bytes=size_bytes, key=key)
        if isinstance(index, MissingBytes):
            found = f"bytes [{before.start}, {before.start + len(before.body)})"
            raise CorruptObject(key, size_bytes, expected=f"bytes [{missing.start}, {missing.end})", found=found)
        return index, body


def _composite(key: str) -> FormatError:
    return FormatError(f"object {key!r}: expected blocks of its own to merge, found a composite object, which has none")
