"""Making a catalog in an empty place, and opening one that is there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec

from accel.catalog import places
from accel.catalog.cells import CatalogCells
from accel.catalog.object_ids import ObjectIds
from accel.catalog.parts import CatalogParts
from accel.catalog.records import NodeDirectory, ObjectIdCounter, StreamBucket
from accel.catalog.settings import CatalogSettings
from accel.errors import CatalogMissing, CommitRefused
from accel.system import Components
from loaders.layout import FORMAT_KEY, ObjectLayout
from loaders.lifetime import Lifetime, Threads
from loaders.object_index import ObjectIndexLoader
from loaders.store import ObjectStore
from loaders.tables import FormatRecord, Tables, create_format, probe_conditions, read_format


def make_catalog(store: ObjectStore, wanted: FormatRecord, settings: CatalogSettings, system: Components) -> None:
    """Make the tables of a catalog, and then the format record that says it is there. Safe to repeat.

    Raises:
        CommitRefused: a catalog with another format record lies here.
        RequestRefused: the endpoint does not keep its word on conditional writes.
    """
    found = read_format(store)
    if found is None:
        wanted = msgspec.structs.replace(wanted, if_match_quotes=probe_conditions(store, system.nonce))
        with ThreadPoolExecutor(settings.parallel_requests, thread_name_prefix="accel-init") as executor:
            _make_tables(catalog_tables(store, wanted, system, executor), wanted, executor)
        found = create_format(store, wanted, system.nonce, sleep=system.sleep, jitter=system.jitter)
    same = msgspec.structs.replace(found, if_match_quotes=wanted.if_match_quotes, generation=wanted.generation)
    if same != wanted:
        raise CommitRefused(f"expected no catalog at {FORMAT_KEY!r}, or one of {wanted}, found {found}")


def existing_format(store: ObjectStore) -> FormatRecord:
    """The format record of a catalog that must be there. One request; nothing is written.

    Raises:
        CatalogMissing: none is.
        FormatTooNew: a newer release made it.
    """
    found = read_format(store)
    if found is None:
        raise CatalogMissing(f"expected a catalog, found nothing at {FORMAT_KEY!r}")
    return found


def catalog_tables(
    store: ObjectStore, record: FormatRecord, system: Components, executor: ThreadPoolExecutor
) -> Tables:
    """The tables of a bucket, with conditional writes as its endpoint wants them."""
    return Tables(
        store,
        nonce=system.nonce,
        sleep=system.sleep,
        jitter=system.jitter,
        executor=executor,
        if_match_quotes=record.if_match_quotes,
    )


def catalog_parts(
    store: ObjectStore,
    record: FormatRecord,
    settings: CatalogSettings,
    system: Components,
    threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor] | None = None,
) -> CatalogParts:
    """The parts of a catalog that is there, for one process. No request.

    Args:
        store: where.
        record: its format record.
        settings: choices of this process.
        system: clock, sleep and chance.
        threads: for the requests of a step, and for opening objects; None = of its own.
    """
    lifetime = Lifetime("a catalog", system.process_id)
    executor, loading = threads or (
        Threads(settings.parallel_requests, "accel-catalog-requests", lifetime=lifetime),
        Threads(settings.parallel_requests, "accel-catalog-objects", lifetime=lifetime),
    )
    layout = ObjectLayout(namespace=record.namespace)
    cells = CatalogCells(catalog_tables(store, record, system, executor))
    return CatalogParts(
        store=store,
        layout=layout,
        format=record,
        cells=cells,
        ids=ObjectIds(cells.object_ids(), settings.ids_block),
        executor=executor,
        loader=ObjectIndexLoader(store, layout, loading),
        settings=settings,
        system=system,
        lifetime=lifetime,
        threads=(executor, loading),
    )


def _make_tables(tables: Tables, record: FormatRecord, executor: ThreadPoolExecutor) -> None:
    list(executor.map(tables.create_table, places.TABLES))
    cells = CatalogCells(tables)
    cells.directory().create_if_absent(NodeDirectory())
    cells.object_ids().create_if_absent(ObjectIdCounter(0))

    def make_bucket(number: int) -> None:
        cells.bucket(number).create_if_absent(StreamBucket(number))

    list(executor.map(make_bucket, range(record.stream_buckets)))
