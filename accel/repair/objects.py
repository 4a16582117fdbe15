"""Puts missing and damaged live objects back from a copy of the bucket.

    1. lists and stream shards are read, and all live objects opened, as in `verify`; an object that was set aside
       because of a damaged block counts as damaged
    2. for each missing or damaged object, the same key is read from the copy
    3. the copy's bytes are compared with the catalog: size, and checksum of index and footer
    4. one conditional write: only if the key is free, or still contains the damaged object, with a mark of this catalog
       or the tail that the catalog knows

Only bytes that match the catalog are put back, no readable live object is changed, and the catalog is not written. An
object that nothing proves to be ours (`proof`) may be another system's: it is not overwritten. So
the operation may run beside readers and writers, and may be repeated. It does not put keys below `accel/` back: in an
older copy they are an earlier state (see `undo.restored`).

The checksum covers the tail. `accel object verify --data` checks the blocks.

Source: docs/operations/repair.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Final

from accel.catalog.bad_objects import Cause, damaged_blocks
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.proof import Standing, prove
from accel.catalog.records import refs_of
from accel.catalog.verify import stream_object_rows
from accel.catalog.whole_catalog import Survey, read_survey
from accel.errors import AccelError, FormatError, KeyMissing
from loaders.format import tail_checksum
from loaders.object_index import OpenedObject
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.object_writer import create_object, fetch_mark
from loaders.store import IfMatch, ObjectStore

OBJECT_SIZE_BYTES_MAX: Final = 1 << 30
"""The maximum size, because each object is held in memory; copy larger objects with the store's tools."""


class PutBackOutcome(StrEnum):
    """The result for an object that is missing or damaged."""

    PUT_BACK = "put back"
    NOT_IN_COPY = "not in the copy"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PutBack:
    """One object that is missing or damaged.

    Args:
        object_id: its id.
        key: its key in the bucket.
        problem: the error of the object.
        outcome: the result; PUT_BACK in a dry run means that it would be put back.
        reason: why it was not put back.
    """

    object_id: int
    key: str
    problem: str
    outcome: PutBackOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PutBackReport:
    """The result of putting objects back.

    Args:
        is_dry_run: whether nothing was written.
        objects: the number of live objects that were checked.
        found: the missing and damaged objects.
        unchecked: the number of objects that could not be checked, because the store failed.
    """

    is_dry_run: bool
    objects: int
    found: tuple[PutBack, ...]
    unchecked: int

    def count(self, outcome: PutBackOutcome) -> int:
        """The number of objects with this outcome."""
        return sum(each.outcome is outcome for each in self.found)


def put_back(
    catalog: ObjectCatalog, copy: ObjectStore, *, is_dry_run: bool, progress: Callable[[int], object] | None = None
) -> PutBackReport:
    """Put live objects back from a copy of the bucket.

    Requests: those of reading lists and shards, one a live object, and for each object that is put back a GET of the
    copy, one of the key, and a PUT.

    Args:
        catalog: the catalog of the live objects.
        copy: a store with the same keys, below the same prefix.
        is_dry_run: only report; the copy is read.
        progress: called with the number of objects that were checked so far.

    Raises:
        StoreError, CorruptObject, CatalogDamaged: lists or shards could not be read. Nothing was written.
    """
    parts = catalog.parts
    found, objects, unchecked = [], 0, 0
    survey = read_survey(parts)
    damaged = {object_id for seen in survey.lists.values() for object_id in damaged_blocks(parts, seen.value)}
    for ref, opened in open_each(parts, _live(survey)):
        objects += 1
        if progress is not None:
            progress(objects)
        error: AccelError | None = None if isinstance(opened, OpenedObject) else opened
        if error is None and ref.object_id in damaged:
            error = FormatError(Cause.BLOCK.text)
        if error is None:
            continue
        if isinstance(error, KeyMissing | FormatError):
            found.append(_PuttingBack(parts, copy, ref, error).run(is_dry_run=is_dry_run))
        else:
            unchecked += 1
    return PutBackReport(is_dry_run, objects, tuple(found), unchecked)


def _live(survey: Survey) -> Iterator[tuple[int, ObjectRef]]:
    listed = ((node_id, ref) for node_id, node in survey.lists.items() for ref in refs_of(node.value.live))
    return chain(listed, ((-1, ref) for ref in refs_of(stream_object_rows(survey))))


class _Refused(Exception):
    """The bytes of the copy do not match the catalog."""


@dataclass(frozen=True, slots=True)
class _PuttingBack:
    """Puts one object back."""

    parts: CatalogParts
    copy: ObjectStore
    ref: ObjectRef
    error: AccelError

    def run(self, *, is_dry_run: bool) -> PutBack:
        try:
            body = self._read_copy()
            etag = self._damaged_etag()
            if not is_dry_run:
                self._write(body, etag)
        except KeyMissing:
            return self._ended(PutBackOutcome.NOT_IN_COPY, "the copy has no object under this key")
        except _Refused as error:
            return self._ended(PutBackOutcome.REFUSED, str(error))
        except AccelError as error:
            return self._ended(PutBackOutcome.FAILED, str(error))
        return self._ended(PutBackOutcome.PUT_BACK, "")

    @property
    def _key(self) -> str:
        return self.parts.layout.object_key(self.ref.object_id)

    def _ended(self, outcome: PutBackOutcome, reason: str) -> PutBack:
        problem = "there is no object" if isinstance(self.error, KeyMissing) else str(self.error)
        return PutBack(self.ref.object_id, self._key, problem, outcome, reason)

    def _read_copy(self) -> bytes:
        ref = self.ref
        if UNKNOWN in (ref.size_bytes, ref.index_size_bytes, ref.tail_checksum) or ref.is_composite:
            raise _Refused("the catalog has no checksum of this object: compare and copy it by hand")
        if ref.size_bytes > OBJECT_SIZE_BYTES_MAX:
            raise _Refused(f"expected at most {OBJECT_SIZE_BYTES_MAX} bytes, found {ref.size_bytes}: copy it by hand")
        body = bytes(self.copy.get(self._key, size_bytes_max=OBJECT_SIZE_BYTES_MAX).body)
        if len(body) != ref.size_bytes:
            raise _Refused(f"expected {ref.size_bytes} bytes in the copy, found {len(body)}")
        found = tail_checksum(body, object_size_bytes=len(body), index_size_bytes=ref.index_size_bytes)
        if found != ref.tail_checksum:
            raise _Refused(f"expected a tail with CRC-32 {ref.tail_checksum:#010x} in the copy, found {found:#010x}")
        return body

    def _damaged_etag(self) -> str | None:
        """The ETag of the object to be replaced; None if the key is free."""
        try:
            found = fetch_mark(self.parts.store, self._key)
        except KeyMissing:
            return None
        parts = self.parts
        if not parts.layout.is_ours(self.ref.object_id, found.mark):
            verdict = prove(parts.store, parts.layout, self.ref)  # a damaged block leaves the tail as it is
            if verdict.standing is not Standing.OURS:
                raise _Refused(f"{verdict.reason}: it may be another system's, so move it away first")
        return found.etag

    def _write(self, body: bytes, etag: str | None) -> None:
        parts = self.parts
        mark = parts.layout.mark(self.ref.object_id, parts.system.nonce)
        if etag is None:
            create_object(parts.store, self._key, body, mark=mark)
        else:
            condition = IfMatch(etag, parts.format.if_match_quotes)
            parts.store.put(self._key, body, condition=condition, mark=mark)
