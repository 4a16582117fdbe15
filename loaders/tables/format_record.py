"""The format record: settings of a whole bucket, and the releases that may use it.

It is at ``accel/format``, in the envelope and the form of table values, but in no table: it is read first. Readers and
writers find in it the largest age of an image, the time for which deleted objects are kept, the number of stream
shards, and whether the endpoint requires quotes in If-Match, which only a writer could find out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from msgspec.structs import force_setattr

from loaders.backoff import Backoff
from loaders.errors import AmbiguousWrite, CorruptObject, DataConflict, FormatTooNew, KeyMissing
from loaders.layout import ACCEL_PREFIX, FORMAT_KEY, check_namespace, place_of
from loaders.settings import check_settings
from loaders.store.base import ObjectStore
from loaders.tables.conditional_write import VALUE_START, ConditionalWriter, Outcome, Stored, decode_stored
from loaders.tables.records import RecordForm

FORMAT_VERSION = 1
"""The newest version of the layout of a whole bucket that this release supports."""

FORMAT_PLACE = place_of(FORMAT_KEY, ACCEL_PREFIX)
"""The place in the checksum of the format record; the places of all tables' values contain a slash."""

FORMAT_SIZE_BYTES_MAX = 1 << 14
"""Longest format record; those of this release have less than 2,000 bytes."""

STREAM_BUCKETS_MAX = 1 << 16
_CATALOG_ID = re.compile(r"(?:[0-9a-f]{32})?")
_GENERATION = re.compile(r"(?:[0-9]{14}-[0-9a-f]{32})?")


class FormatRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a bucket. Immutable.

    Attributes:
        version: of the whole layout: keys, tables, and their meaning.
        namespace: the cluster's name in the keys of objects: one path element, 1 to 255 bytes of UTF-8.
        max_image_age_seconds: the largest age of an image that readers answer from.
        retention_seconds: time for which a compacted object is kept; at least twice `max_image_age_seconds`.
        prepared_seconds: default bound on the time from preparing an object to committing it; at least
            `max_image_age_seconds` and `clock_skew_seconds` together.
        orphan_seconds: age from which an unlisted object may be deleted; at least `retired_seconds`.
        clock_skew_seconds: largest difference between the clocks of two machines.
        stream_buckets: the number of stream shards, 1 to 65,536; never changes.
        if_match_quotes: whether the endpoint requires quotes around the ETag of If-Match; None = not known.
        generation: changes each time that the bucket was restored from a copy and `accel catalog restored` was run;
            empty at first, and then above all earlier generations: 14 digits of milliseconds since 1970, `-`, and 32
            hexadecimal digits.
        catalog_id: of this catalog alone, in the marks of its objects: 32 hexadecimal digits, never changed; empty in
            catalogs of older releases until their first write.

    Raises:
        NameRefused: a namespace that cannot be part of keys; see `loaders.layout.check_namespace`.
        ValueError: an invalid number, generation or catalog id.
    """

    version: int = FORMAT_VERSION
    namespace: str
    max_image_age_seconds: float = 600.0
    retention_seconds: float = 3600.0
    prepared_seconds: float = 86400.0
    orphan_seconds: float = 259200.0
    clock_skew_seconds: float = 60.0
    stream_buckets: int = 32
    if_match_quotes: bool | None = None
    generation: str = ""
    catalog_id: str = ""

    def __post_init__(self) -> None:
        least = {"retention_seconds": 0, "clock_skew_seconds": 0}
        check_settings(self, least=least, most={"stream_buckets": STREAM_BUCKETS_MAX}, set_field=force_setattr)
        check_namespace(self.namespace)
        check_generation(self.generation)
        if _CATALOG_ID.fullmatch(self.catalog_id) is None:
            raise ValueError(f"expected a catalog id of 32 hexadecimal digits, found {self.catalog_id[:64]!r}")
        self._check_least()

    def _check_least(self) -> None:
        """Check that the times do not allow to delete objects that a reader or a writer may still need."""
        age, skew = self.max_image_age_seconds, self.clock_skew_seconds
        reason = "twice max_image_age_seconds, as readers may have an image of that age"
        _check_at_least("retention_seconds", self.retention_seconds, 2 * age, reason)
        reason = "max_image_age_seconds and clock_skew_seconds, as writers may have such an image, and clock"
        _check_at_least("prepared_seconds", self.prepared_seconds, age + skew, reason)
        reason = "the time for which a retired object is kept, as readers may have an image that lists it"
        _check_at_least("orphan_seconds", self.orphan_seconds, self.retired_seconds, reason)

    @property
    def retired_seconds(self) -> float:
        """Time for which a compacted object is kept: afterwards no reader has an image that lists it."""
        return max(self.retention_seconds, 2 * self.max_image_age_seconds) + self.clock_skew_seconds


FORMAT_FORM = RecordForm("format", 1, FormatRecord)


def check_generation(generation: str) -> None:
    """Check the form of a generation.

    Raises:
        ValueError: not empty, and not 14 digits of milliseconds since 1970, a hyphen, and 32 hexadecimal digits.
    """
    if _GENERATION.fullmatch(generation) is None:
        found = f"{generation[:64]!r}"
        raise ValueError(f"expected a generation of 14 digits, a hyphen and 32 hexadecimal digits, found {found}")


def read_format(store: ObjectStore) -> FormatRecord | None:
    """Read the format record; None if there is none. One request.

    Raises:
        FormatTooNew: a newer release wrote this bucket.
        CorruptObject: damage.
    """
    try:
        return _decoded(_read(store))
    except KeyMissing:
        return None


def renew_format(
    store: ObjectStore,
    generation: str,
    nonce: Callable[[], bytes],
    *,
    sleep: Callable[[float], object] = lambda _: None,
    jitter: Callable[[], float] = lambda: 0.0,
) -> FormatRecord:
    """Write a new generation into the format record, above the stored one. Two requests.

    Args:
        store: the store of the bucket.
        generation: the new generation.
        nonce, sleep, jitter: as for `create_format`.

    Raises:
        KeyMissing: there is no format record.
        ValueError: a generation that is not above the stored one.
        DataConflict: another writer changed it meanwhile.
        AmbiguousWrite: the reply was lost, and another writer changed it.
        FormatTooNew, CorruptObject: as `read_format`.
    """
    stored = _read(store)
    record = _decoded(stored)
    if generation <= record.generation:
        raise ValueError(f"expected a generation above {record.generation!r}, found {generation!r}")
    renewed = msgspec.structs.replace(record, generation=generation)
    _replace(_writer(store, nonce, sleep, jitter, record.if_match_quotes), stored, renewed)
    return renewed


def identify_catalog(
    store: ObjectStore,
    nonce: Callable[[], bytes],
    *,
    sleep: Callable[[float], object] = lambda _: None,
    jitter: Callable[[], float] = lambda: 0.0,
) -> FormatRecord:
    """Give a catalog an id if it has none, and return the stored record: with this id, or another writer's.

    One request, or two. Arguments and errors: as `renew_format`.
    """
    stored = _read(store)
    record = _decoded(stored)
    if record.catalog_id:
        return record
    named = msgspec.structs.replace(record, catalog_id=nonce().hex())
    try:
        _replace(_writer(store, nonce, sleep, jitter, record.if_match_quotes), stored, named)
    except DataConflict:
        record = _decoded(_read(store))
        if not record.catalog_id:
            raise
        return record
    return named


def create_format(
    store: ObjectStore,
    record: FormatRecord,
    nonce: Callable[[], bytes],
    *,
    sleep: Callable[[float], object] = lambda _: None,
    jitter: Callable[[], float] = lambda: 0.0,
) -> FormatRecord:
    """Write the format record if it is missing, and return the stored record: this one, or another writer's.

    Args:
        store: the store of the bucket.
        record: the record to write.
        nonce: returns 16 random bytes.
        sleep: waits between repetitions; by default there is no pause.
        jitter: returns a random number in [0, 1).

    Raises:
        AmbiguousWrite: the reply was lost, and the record cannot be read.
        FormatTooNew, CorruptObject: as `read_format`.
    """
    writer = _writer(store, nonce, sleep, jitter)
    settled = writer.write(FORMAT_KEY, FORMAT_FORM.encode(record), None)
    if settled.current is None:
        raise _ambiguous() from settled.cause
    return _decoded(settled.current)


def _replace(writer: ConditionalWriter, stored: Stored, record: FormatRecord) -> None:
    settled = writer.write(FORMAT_KEY, FORMAT_FORM.encode(record), stored.version)
    if settled.outcome is Outcome.LOST:
        raise DataConflict("", FORMAT_KEY, "expected the format record that was read, found another one")
    if settled.outcome is Outcome.AMBIGUOUS:
        raise _ambiguous() from settled.cause


def _read(store: ObjectStore) -> Stored:
    fetched = store.get(FORMAT_KEY, size_bytes_max=VALUE_START + FORMAT_SIZE_BYTES_MAX)
    return decode_stored(fetched.body, FORMAT_PLACE, etag=fetched.etag, where=FORMAT_KEY)


def _writer(
    store: ObjectStore,
    nonce: Callable[[], bytes],
    sleep: Callable[[float], object],
    jitter: Callable[[], float],
    quotes: bool | None = None,
) -> ConditionalWriter:
    backoff = Backoff(sleep, jitter)
    most = FORMAT_SIZE_BYTES_MAX
    return ConditionalWriter(store, nonce, backoff, ACCEL_PREFIX, value_size_bytes_max=most, if_match_quotes=quotes)


def _ambiguous() -> AmbiguousWrite:
    detail = "the reply was lost, and it is not known whether the format record was written"
    return AmbiguousWrite("", FORMAT_KEY, detail)


def _decoded(stored: Stored) -> FormatRecord:
    if stored.value is None:
        raise CorruptObject(FORMAT_KEY, -1, expected="a format record", found="a tombstone")
    record = FORMAT_FORM.decode(stored.value, FORMAT_KEY)
    if record.version > FORMAT_VERSION:
        expected = f"a bucket of format version 1 to {FORMAT_VERSION}"
        raise FormatTooNew(f"expected {expected}, found format version {record.version}")
    return record


def _check_at_least(name: str, seconds: float, least: float, reason: str) -> None:
    if seconds < least:
        raise ValueError(f"expected {name} of at least {least:g} ({reason}), found {seconds:g}")
