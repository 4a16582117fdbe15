"""Roots of hints, and the problems that a hint can have.

**Problems.** A hint saves requests, and no answer depends on it. So all problems have the same consequence: the lookup
continues without the hint. A problem is counted and never reaches a caller of lookups. Counters distinguish the kinds,
since the remedies differ:

    | kind    | cause                                                            | remedy                          |
    |---------|------------------------------------------------------------------|---------------------------------|
    | missing | no root: no hints were built for this node                       | build them                      |
    | corrupt | bytes contradict the format, a checksum, or themselves           | build them again                |
    | foreign | of another cluster, another node, or a newer release             | check prefixes; upgrade         |
    | mixed   | an object differs in size from the one that the root names       | build them again, by one writer |
    | stale   | an object that the root names was replaced and deleted           | none: the root is read again    |

**Bytes.** A root is a record in an envelope:

    | at | bytes | field     | meaning                                                    |
    |----|-------|-----------|------------------------------------------------------------|
    | 0  | 4     | magic     | AC 48 4E 54                                                |
    | 4  | 1     | version   | of this envelope: 1                                        |
    | 5  | 3     | reserved  | zero                                                       |
    | 8  | 4     | CRC-32    | of all bytes but these four                                |
    | 12 | 4     | length    | of the record                                              |
    | 16 | n     | record    | in its named, versioned form (loaders/tables/records.py)   |

All integers are big endian.

**Swap.** A root is swapped by a plain put: roots are hints, so of two writers the last one wins, and either root is
whole. The objects that a root names were written before it and are never changed. Each generation's root is also kept
beside its data objects, so that the collector of old generations can find the objects that readers of an older root may
still request.

**Covered objects.** A root names its covered objects by id and size, and is not used for any other object. An id is
never used twice, and an object never changes. The size is compared as well, so that a root from another bucket or
cluster, which may have the same ids, is not used.

**In memory.** A root of any age is valid for the objects that it names; an old root only covers fewer of the objects
that are listed now. So `RootCache`, bounded in bytes, keeps a root until its time to live is over and then requests it
again; the response has no body if the root is unchanged. The cache keeps the fact that a root cannot be used for the
same time; the fact that a node has no root, optionally longer, so that a cluster without hints does not pay for them.

    node 7   root, read 40 s ago       use it
    node 8   none, read 40 s ago       continue without it; no request before the time is over
    node 9   root, given up            continue without it for a few seconds, then read it again: its files are gone
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import msgspec
import numpy as np
import zstandard
from cachetools import Cache
from numpy.typing import NDArray

from loaders.counting import CacheStats, CountedCache
from loaders.errors import AccelError, AccessDenied, CorruptObject, FormatLimit, FormatTooNew, KeyMissing, RangeInvalid
from loaders.layout import HINT_ROOT_NAME, HintKind, hint_file_key, hint_root_key
from loaders.object_ref import ObjectRef
from loaders.settings import HINT_ROOTS_SIZE_BYTES_MAX, HINT_TTL_SECONDS
from loaders.store.base import Fetched, ObjectStore
from loaders.tables.records import RecordForm


class HintTrouble(StrEnum):
    """The kind of a problem; the text is the name of its counter."""

    MISSING = "missing"
    CORRUPT = "corrupt"
    FOREIGN = "foreign"
    MIXED = "mixed"
    STALE = "stale"


class HintProblem(Exception):
    """A hint that cannot be used. Internal, and no `AccelError`: the catcher continues without the hint.

    Args:
        kind: of the problem.
        key: of the hint.
        detail: what was expected, and what was found.
    """

    def __init__(self, kind: HintTrouble, key: str, detail: str) -> None:
        super().__init__(f"hint {key!r} is {kind}: {detail}")
        self.kind = kind
        self.key = key
        self.detail = detail

    def __reduce__(self) -> tuple[type[HintProblem], tuple[HintTrouble, str, str]]:
        return type(self), (self.kind, self.key, self.detail)


class ByteSpan(NamedTuple):
    """Bytes ``[start, end)`` of the object at a key: one ranged GET.

    Attributes:
        key: the object.
        start: first byte.
        end: one past the last byte.
        object_size_bytes: length of the object; an object of another length is another object.
        first: number of the first item (a row group, or an entry of a pack in the order of its plan) in the span.
        stop: one past the number of the last item.
    """

    key: str
    start: int
    end: int
    object_size_bytes: int
    first: int
    stop: int

    @property
    def size_bytes(self) -> int:
        """The number of bytes."""
        return self.end - self.start


def read_span(store: ObjectStore, span: ByteSpan) -> bytes:
    """Read the bytes of a span. One request.

    Raises:
        HintProblem: stale or mixed.
        StoreError: the request failed.
    """
    try:
        return checked_body(span, store.get_range(span.key, span.start, span.end))
    except (KeyMissing, AccessDenied, RangeInvalid) as error:
        raise span_problem(span, error) from error


def checked_body(span: ByteSpan, fetched: Fetched) -> bytes:
    """The body of a response to a request for the span, if it comes from the object that the root names.

    Raises:
        HintProblem: mixed.
    """
    if fetched.object_size_bytes != span.object_size_bytes or len(fetched.body) != span.size_bytes:
        expected = f"{span.size_bytes} of {span.object_size_bytes} bytes"
        found = f"{len(fetched.body)} of {fetched.object_size_bytes}"
        raise HintProblem(HintTrouble.MIXED, span.key, f"expected {expected}, found {found}")
    return fetched.body


def span_problem(span: ByteSpan, error: AccelError) -> HintProblem:
    """The problem for a failed read of the span: mixed if the object is shorter, else stale."""
    kind = HintTrouble.MIXED if isinstance(error, RangeInvalid) else HintTrouble.STALE
    return HintProblem(kind, span.key, str(error))


S = TypeVar("S", bound=msgspec.Struct)

MAGIC = b"\xacHNT"
ROOT_VERSION = 1
ROOT_SIZE_BYTES_MAX = 64 << 20
"""A longer root is neither written nor read."""

_HEAD = struct.Struct(">4sB3x")
_NUMBER = struct.Struct(">I")
_RECORD_START = 16


def seal_root(record: bytes) -> bytes:
    """The bytes of a root: the envelope and this record; O(size).

    Raises:
        FormatLimit: a root of more than 64 MiB.
    """
    if len(record) > ROOT_SIZE_BYTES_MAX - _RECORD_START:
        most = ROOT_SIZE_BYTES_MAX - _RECORD_START
        raise FormatLimit(f"expected a root's record of at most {most} bytes, found {len(record)}")
    head, rest = _HEAD.pack(MAGIC, ROOT_VERSION), _NUMBER.pack(len(record)) + record
    return b"".join((head, _NUMBER.pack(zlib.crc32(rest, zlib.crc32(head))), rest))


def open_root(data: bytes, form: RecordForm[S], where: str) -> S:
    """The record of a root; O(size).

    Args:
        data: all bytes of the object.
        form: of the record.
        where: the object's key, for the problem.

    Raises:
        HintProblem: corrupt, or foreign (of a newer release).

    Source: docs/reference/hints.md, "Roots".
    """
    _check(len(data) <= ROOT_SIZE_BYTES_MAX, where, f"at most {ROOT_SIZE_BYTES_MAX} bytes", f"{len(data)}")
    _check(len(data) >= _RECORD_START and data.startswith(MAGIC), where, "a root", data[:8].hex() or "nothing")
    version = data[_HEAD.size - 4]
    if version > ROOT_VERSION:
        raise HintProblem(
            HintTrouble.FOREIGN, where, f"expected an envelope of version {ROOT_VERSION}, found {version}"
        )
    _check(data[: _HEAD.size] == _HEAD.pack(MAGIC, ROOT_VERSION), where, "the head of a root", data[:8].hex())
    rest = memoryview(data)[_HEAD.size + 4 :]
    actual, noted = zlib.crc32(rest, zlib.crc32(data[: _HEAD.size])), _NUMBER.unpack_from(data, _HEAD.size)[0]
    _check(actual == noted, where, f"a CRC-32 of {noted:#010x}", f"{actual:#010x}")
    length = _NUMBER.unpack_from(data, _RECORD_START - 4)[0]
    _check(length == len(data) - _RECORD_START, where, f"a record of {length} bytes", f"{len(data) - _RECORD_START}")
    try:
        return form.decode(data[_RECORD_START:], where)
    except FormatTooNew as error:
        raise HintProblem(HintTrouble.FOREIGN, where, str(error)) from error
    except CorruptObject as error:
        raise HintProblem(HintTrouble.CORRUPT, where, f"expected {error.expected}, found {error.found}") from error


def fetch_root(store: ObjectStore, key: str) -> Fetched | None:
    """Read the bytes of a root; None if there is none. One request of bounded size, for objects of any size.

    Raises:
        HintProblem: corrupt: larger than any root, or empty.
        StoreError: the request failed.
    """
    try:
        fetched = store.get_range(key, 0, ROOT_SIZE_BYTES_MAX)
    except (KeyMissing, AccessDenied):  # without the right to list, S3 denies access to missing keys
        return None
    except RangeInvalid as error:
        raise HintProblem(HintTrouble.CORRUPT, key, "expected a root, found an empty object") from error
    whole = fetched.object_size_bytes == len(fetched.body)
    _check(whole, key, f"at most {ROOT_SIZE_BYTES_MAX} bytes", f"{fetched.object_size_bytes}")
    return fetched


def fetch_changed_root(store: ObjectStore, key: str, etag: str) -> Fetched | None:
    """Read the bytes of a root; None if it still has this ETag. One request.

    Raises:
        HintProblem: corrupt: larger than any root.
        StoreError: the request failed.
    """
    try:
        return store.get_if_changed(key, etag, size_bytes_max=ROOT_SIZE_BYTES_MAX)
    except CorruptObject as error:
        raise HintProblem(HintTrouble.CORRUPT, key, f"expected {error.expected}, found {error.found}") from error


def swap_root(store: ObjectStore, kind: HintKind, node_id: int, generation: int, data: bytes) -> None:
    """Put this root as the node's root; all objects that it names must be in the store already. Two requests.

    Raises:
        StoreError: the root may or may not have been swapped.
    """
    store.put(hint_file_key(kind, node_id, generation, HINT_ROOT_NAME), data)
    store.put(hint_root_key(kind, node_id), data)


@contextmanager
def damage_told(where: str) -> Iterator[None]:
    """Convert errors of decoding the fields of a root to a problem of that hint.

    Raises:
        HintProblem: foreign if a newer release wrote it, else corrupt.
    """
    try:
        yield
    except FormatTooNew as error:
        raise HintProblem(HintTrouble.FOREIGN, where, str(error)) from error
    except (CorruptObject, ValueError, OverflowError, zstandard.ZstdError) as error:
        raise HintProblem(HintTrouble.CORRUPT, where, str(error)) from error


def check_identity(where: str, found: tuple[str, int], expected: tuple[str, int]) -> None:
    """Refuse a root of another namespace or node.

    Raises:
        HintProblem: foreign.
    """
    if found != expected:
        detail = f"expected namespace and node {expected}, found {found}"
        raise HintProblem(HintTrouble.FOREIGN, where, detail)


def _check(holds: bool, where: str, expected: str, found: str) -> None:
    if not holds:
        raise HintProblem(HintTrouble.CORRUPT, where, f"expected {expected}, found {found}")


Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CoveredObjects:
    """Objects by ascending id, each with its size in bytes. Threads: immutable."""

    object_ids: Numbers
    sizes: Numbers

    def __post_init__(self) -> None:
        ids, sizes = self.object_ids, self.sizes
        if ids.shape != (len(ids),) or sizes.shape != ids.shape:
            raise ValueError(f"expected a size for each object, found {ids.shape} ids and {sizes.shape} sizes")
        if len(ids) and (ids[0] < 0 or (ids[1:] <= ids[:-1]).any()):
            raise ValueError("expected ascending object ids of at least 0, each once, found others")
        if len(ids) and sizes.min() < 0:
            raise ValueError(f"expected sizes of at least 0, found {int(sizes.min())}")

    @classmethod
    def of(cls, refs: Iterable[ObjectRef]) -> Self:
        """Build from references in any order.

        Raises:
            ValueError: an id twice, or an unknown size.
        """
        pairs = sorted((ref.object_id, ref.size_bytes) for ref in refs)
        table = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
        return cls(np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1]))

    def __len__(self) -> int:
        """The number of objects."""
        return len(self.object_ids)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays: 16 bytes an object."""
        return self.object_ids.nbytes + self.sizes.nbytes

    def positions(self, object_ids: Numbers) -> Numbers:
        """For each id its position among these objects, or -1; O(n log objects)."""
        if not len(self):
            return np.full(len(object_ids), -1, dtype=np.int64)
        places = np.minimum(self.object_ids.searchsorted(object_ids), len(self) - 1)
        return np.where(self.object_ids[places] == object_ids, places, -1)

    def covers(self, object_ids: Numbers, sizes: Numbers) -> NDArray[np.bool_]:
        """For each object, whether it is one of these, size included; O(n log objects)."""
        places = self.positions(object_ids)
        if not len(self):
            return places >= 0
        covered: NDArray[np.bool_] = (places >= 0) & (self.sizes[places] == sizes)
        return covered


RETRY_SECONDS = 5.0
_ENTRY_SIZE_BYTES = 500  # memory of an entry of the cache besides its root


class Root(Protocol):
    """A root that `RootCache` can keep."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        ...

    @property
    def generation(self) -> int:
        """The generation of its files: the time of the build in milliseconds since 1970, or a little later."""
        ...


R = TypeVar("R", bound=Root)


@dataclass(frozen=True, slots=True)
class KnownRoot(Generic[R]):
    """The result of the last read of a node's root.

    Args:
        root: the root; None if there is no usable one.
        problem: the reason why there is no usable root.
        etag: of the object that was read; empty if there was none.
        due_seconds: when the root is to be read again, by the cache's timer.
        read_size_bytes: bytes of the last read; 0 if the root was unchanged.
    """

    root: R | None
    problem: HintProblem | None
    etag: str
    due_seconds: float
    read_size_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return _ENTRY_SIZE_BYTES + (0 if self.root is None else self.root.nbytes)


class RootCache(Generic[R]):
    """A cache of roots of one kind by node.

    Args:
        key: returns the key of a node's root.
        decode: decodes the bytes of a root; raises HintProblem.
        timer: seconds, from any start.
        size_bytes_max: bound of all roots together; a larger root is used once and not kept. 64 MiB by default.
        ttl_seconds: the time after which a root is requested again; 60 by default.
        missing_ttl_seconds: the time after which a missing root is requested again; `ttl_seconds` by default.

    Threads: any. The lock is not held over I/O; two threads that miss one root may both read it.
    """

    def __init__(
        self,
        key: Callable[[int], str],
        decode: Callable[[bytes, int], R],
        timer: Callable[[], float],
        *,
        size_bytes_max: int = HINT_ROOTS_SIZE_BYTES_MAX,
        ttl_seconds: float = HINT_TTL_SECONDS,
        missing_ttl_seconds: float | None = None,
    ) -> None:
        self._key = key
        self._decode = decode
        self._timer = timer
        self._ttl_seconds = ttl_seconds
        self._missing_ttl_seconds = ttl_seconds if missing_ttl_seconds is None else missing_ttl_seconds
        self._lock = threading.Lock()
        self._known: CountedCache[int, KnownRoot[R]] = CountedCache(size_bytes_max, lambda known: known.nbytes)

    def known(self, node_id: int) -> KnownRoot[R] | None:
        """The cached result if it is not too old; if None, read the root and pass it to `take`."""
        now = self._timer()
        with self._lock:
            known = self._known.get(node_id)
            if known is None or now >= known.due_seconds:
                return None
            self._known.hits += 1
            return known

    def last_known(self, node_id: int) -> KnownRoot[R] | None:
        """The cached result of any age, for reports; None if there is none. Does not count as a use."""
        with self._lock:
            return Cache.get(self._known, node_id)

    def take(self, node_id: int, fetched: Fetched | None) -> KnownRoot[R]:
        """Cache the result of a read of the root; None: there is no such object. O(size), outside the lock.

        If the root cannot be used, the problem is in the result; nothing is raised.
        """
        now = self._timer()
        known: KnownRoot[R]
        if fetched is None:
            missing = HintProblem(HintTrouble.MISSING, self._key(node_id), "no such object")
            return self._keep(node_id, KnownRoot(None, missing, "", now + self._missing_ttl_seconds), read=True)
        due, etag, size = now + self._ttl_seconds, fetched.etag, len(fetched.body)
        try:
            known = KnownRoot(self._decode(fetched.body, node_id), None, etag, due, size)
        except HintProblem as problem:
            known = KnownRoot(None, problem, etag, due, size)
        return self._keep(node_id, known, read=True)

    def read(self, store: ObjectStore, node_id: int) -> KnownRoot[R]:
        """The cached result, or the result of a new read if it is too old: at most one request.

        Raises:
            StoreError: the request failed.
        """
        if (known := self.known(node_id)) is not None:
            return known
        with self._lock:
            old = self._known.get(node_id)
        if old is not None and old.root is not None:
            return self._read_changed(store, node_id, old)
        try:
            return self.take(node_id, fetch_root(store, self._key(node_id)))
        except HintProblem as problem:
            return self._keep(node_id, KnownRoot(None, problem, "", self._timer() + self._ttl_seconds), read=True)

    def give_up(self, node_id: int, problem: HintProblem) -> None:
        """Stop using this node's root, whose objects are gone or replaced, for a few seconds; then read it again."""
        due = self._timer() + min(RETRY_SECONDS, self._ttl_seconds)
        self._keep(node_id, KnownRoot(None, problem, "", due), read=False)

    def stats(self) -> CacheStats:
        """Sizes and counts now: an entry is a node, a miss is a read."""
        with self._lock:
            return self._known.stats()

    def generations(self) -> list[int]:
        """The generations of the cached roots."""
        with self._lock:
            known = [Cache.__getitem__(self._known, node_id) for node_id in self._known]  # no use, unlike get
            return [each.root.generation for each in known if each.root is not None]

    def _read_changed(self, store: ObjectStore, node_id: int, old: KnownRoot[R]) -> KnownRoot[R]:
        try:
            fetched = fetch_changed_root(store, self._key(node_id), old.etag)
        except (KeyMissing, AccessDenied):  # without the right to list, S3 denies access to missing keys
            return self.take(node_id, None)
        except HintProblem as problem:
            return self._keep(node_id, KnownRoot(None, problem, "", self._timer() + self._ttl_seconds), read=True)
        if fetched is not None:
            return self.take(node_id, fetched)
        due = self._timer() + self._ttl_seconds
        return self._keep(node_id, replace(old, due_seconds=due, read_size_bytes=0), read=True)

    def _keep(self, node_id: int, known: KnownRoot[R], *, read: bool) -> KnownRoot[R]:
        with self._lock:
            self._known.misses += read
            self._known.pop(node_id, None)
            if known.nbytes <= self._known.maxsize:
                self._known[node_id] = known
        return known
