"""The format record is written once, read by everybody, and refused where a newer release wrote it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from accel.testing import Fault, FaultStore
from loaders.errors import AmbiguousWrite, CorruptObject, FormatTooNew, StoreError, StoreUnavailable
from loaders.layout import FORMAT_KEY
from loaders.store import MemoryStore
from loaders.store.decorated import WRITES
from loaders.tables import (
    FORMAT_FORM,
    FormatRecord,
    Version,
    create_format,
    identify_catalog,
    probe_conditions,
    read_format,
)
from loaders.tables.conditional_write import (
    ConditionalWriter,
    Outcome,
    Stored,
    WriteResult,
    decode_stored,
    encode_stored,
)
from loaders.tables.format_record import FORMAT_PLACE
from tests.loaders.tables.golden import golden
from tests.loaders.tables.worlds import ByteTables, ReadOnly, World, new_nonce, no_sleep

RECORD = FormatRecord(
    namespace="_kafka_rZdE0DjZSrqy96PXrMUZVw",
    stream_buckets=8,
    if_match_quotes=False,
    catalog_id="0123456789abcdef" * 2,
)
VERSION = Version("e", 1, bytes(range(0xA0, 0xB0)))


def put_record(store: MemoryStore, body: bytes) -> None:
    store.put(FORMAT_KEY, encode_stored(Stored(body, VERSION), FORMAT_PLACE))


def test_the_bytes_are_pinned() -> None:
    assert encode_stored(Stored(FORMAT_FORM.encode(RECORD), VERSION), FORMAT_PLACE) == golden("format-record")
    stored = decode_stored(golden("format-record"), FORMAT_PLACE, etag="e", where="k")
    assert FORMAT_FORM.decode(stored.value or b"", "k") == RECORD


def test_the_first_record_stands(world: World) -> None:
    assert read_format(world.store) is None
    assert create_format(world.store, RECORD, new_nonce) == RECORD
    assert create_format(world.store, FormatRecord(namespace="other"), new_nonce) == RECORD
    assert read_format(world.store) == RECORD


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.SHORT_BODY])
def test_a_fault_ends_as_if_it_had_not_been(memory: World, fault: Fault) -> None:
    faults = FaultStore(memory.store, operations=WRITES)
    faults.schedule(fault)
    assert create_format(faults, RECORD, new_nonce) == RECORD == read_format(memory.store)


def test_an_id_that_may_have_been_written_or_not_is_no_success(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    create_format(memory.store, FormatRecord(namespace="n"), new_nonce)
    doubtful = WriteResult(Outcome.AMBIGUOUS, None, cause=StoreUnavailable("put", FORMAT_KEY, "no answer"))
    monkeypatch.setattr(ConditionalWriter, "write", lambda *_, **__: doubtful)
    with pytest.raises(AmbiguousWrite):
        identify_catalog(memory.store, new_nonce)


def test_a_catalog_without_an_id_gets_one_from_its_first_writer_for_good(world: World) -> None:
    record = FormatRecord(namespace="n", if_match_quotes=probe_conditions(world.store, new_nonce))
    create_format(world.store, record, new_nonce)
    named = identify_catalog(world.store, new_nonce)
    assert len(named.catalog_id) == 32
    assert named == read_format(world.store) == identify_catalog(world.store, new_nonce)
    assert msgspec.structs.replace(named, catalog_id="") == record


def test_of_eight_who_give_a_catalog_its_id_all_get_the_same(memory: World) -> None:
    create_format(memory.store, FormatRecord(namespace="n"), new_nonce)
    with ThreadPoolExecutor(8) as pool:
        assert len({each.result() for each in [pool.submit(identify_catalog, memory.store, new_nonce)] * 8}) == 1
    with ThreadPoolExecutor(8) as pool:
        found = {each.catalog_id for each in pool.map(lambda _: identify_catalog(memory.store, new_nonce), range(8))}
    assert len(found) == 1


@pytest.mark.parametrize("catalog_id", ["0", "0A" * 16, "0a" * 17, "g" * 32])
def test_a_catalog_id_has_32_digits(catalog_id: str) -> None:
    with pytest.raises(ValueError, match="catalog id"):
        FormatRecord(namespace="n", catalog_id=catalog_id)


def test_a_reader_starts_with_permission_to_read_and_nothing_else(world: World) -> None:
    """The writer probes and writes down what it found; a reader takes it from there."""
    quotes = probe_conditions(world.store, new_nonce)
    create_format(world.store, FormatRecord(namespace="n", if_match_quotes=quotes), new_nonce)
    world.table().create("k", b"1")
    seen = read_format(ReadOnly(world.store))
    assert seen is not None
    reader = ByteTables(
        ReadOnly(world.store), nonce=new_nonce, sleep=no_sleep, jitter=lambda: 0.0, if_match_quotes=seen.if_match_quotes
    )
    assert reader.table("t").get("k").value == b"1"
    assert list(reader.table("t").keys()) == ["k"]
    assert list(reader.table_names()) == ["t"]
    with pytest.raises(StoreError, match="403"):
        reader.table("t").create("k2", b"")
    writer = ByteTables(
        world.store, nonce=new_nonce, sleep=no_sleep, jitter=lambda: 0.0, if_match_quotes=seen.if_match_quotes
    )
    assert writer.table("t").change("k", lambda _: b"2").value == b"2"


def test_what_a_newer_release_wrote_is_refused() -> None:
    store = MemoryStore()
    put_record(store, FORMAT_FORM.encode(msgspec.structs.replace(RECORD, version=2)))
    with pytest.raises(FormatTooNew, match="format version 1 to 1, found format version 2"):
        read_format(store)
    with pytest.raises(FormatTooNew, match="format version 1 to 1, found format version 2"):
        create_format(store, RECORD, new_nonce)
    put_record(store, b"\x06format\x00\x02\x80")
    with pytest.raises(FormatTooNew, match="form 'format' of version 1, found 2"):
        read_format(store)
    newer = bytearray(golden("format-record"))
    newer[4] = 3
    store.put(FORMAT_KEY, bytes(newer))
    with pytest.raises(FormatTooNew, match="envelope of version 2, found 3"):
        read_format(store)


def test_damage_is_found() -> None:
    store = MemoryStore()
    store.put(FORMAT_KEY, b"garbage")
    with pytest.raises(CorruptObject, match="'accel/format'"):
        read_format(store)
    put_record(store, b"\x06format\x00\x01\x80")
    with pytest.raises(CorruptObject, match="namespace"):
        read_format(store)
    store.put(FORMAT_KEY, encode_stored(Stored(None, VERSION), FORMAT_PLACE))
    with pytest.raises(CorruptObject, match="tombstone"):
        read_format(store)


def test_compacted_objects_outlive_every_image_that_may_name_them() -> None:
    assert FormatRecord(namespace="n").retired_seconds == 3660
    short = FormatRecord(namespace="n", retention_seconds=1200, max_image_age_seconds=600, clock_skew_seconds=5)
    assert short.retired_seconds == 1205


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": ""},
        {"namespace": "a/b"},
        {"stream_buckets": 0},
        {"stream_buckets": 65537},
        {"version": 0},
        {"max_image_age_seconds": 0.0},
        {"prepared_seconds": -1.0},
        {"orphan_seconds": float("inf")},
        {"retention_seconds": -1.0},
        {"clock_skew_seconds": float("nan")},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        FormatRecord(**({"namespace": "n"} | wrong))  # type: ignore[arg-type] # one wrong value at a time


@pytest.mark.parametrize(
    ("least", "reason"),
    [
        ({"retention_seconds": 1200.0}, "twice max_image_age_seconds"),
        ({"prepared_seconds": 605.0}, "max_image_age_seconds and clock_skew_seconds"),
        ({"orphan_seconds": 3605.0}, "the time for which a retired object is kept"),
    ],
)
def test_times_after_which_somebody_may_need_an_object_still_are_refused(least: dict[str, float], reason: str) -> None:
    others = {"namespace": "n", "max_image_age_seconds": 600.0, "clock_skew_seconds": 5.0}
    [(name, seconds)] = least.items()
    assert getattr(FormatRecord(**others | least), name) == seconds  # type: ignore[arg-type] # one after the other
    for short in (1.0, seconds - 0.5):
        with pytest.raises(ValueError, match=rf"{name} of at least {seconds:g} \({reason}.*found {short:g}"):
            FormatRecord(**others | {name: short})  # type: ignore[arg-type] # likewise
