"""The parts that the users of one opened catalog share; making a catalog in an empty store, and opening it.

Settings are choices of one process; the format record contains the values that readers and writers must agree on.

**Object ids** are allocated in blocks from a counter (`loaders.tables.IdBlocks`), and never twice. The counter is made
with the catalog and never made again.

**A catalog is made** in this order, each key created if absent:

    1. the tables
    2. the choices                the contents of the later format record; only a call with the same choices goes on
    3. the directory, the counter of object ids, the tables that all streams share with their counters
    4. the stream shards
    5. accel/format               from here on the catalog exists

So a process that finds the format record finds all keys; a key that is missing then was deleted. After a crash at any
write, the same call is repeated. If only the format record was deleted, the same call writes it again, if the rest of
the catalog is complete: once a node has written, or ids were allocated, no other key is made again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from accel.catalog.keys import NODE_LISTS, TABLES, CatalogKeys, parse_node_key, require
from accel.catalog.records import NodeDirectory, StreamShard, highest_id
from accel.catalog.sketches_and_ends import KnownEnds
from accel.errors import AccelError, CatalogDamaged, CatalogMissing, CommitRefused
from accel.settings import CatalogSettings
from accel.system import Components, measured, of_store
from accel.units import milliseconds
from loaders.errors import AccessDenied, StoreError, StoreUnavailable, TableMissing
from loaders.layout import FORMAT_KEY, PROBE_PREFIX, TABLES_PREFIX, ObjectLayout, table_folder
from loaders.lifetime import Lifetime
from loaders.object_index import ObjectIndexLoader, OpenedObject
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.object_writer import stored_size_bytes
from loaders.store import ObjectStore
from loaders.store.base import LIST_PAGE_KEYS_MAX
from loaders.store.decorated import folder_of
from loaders.tables import (
    FormatRecord,
    IdBlocks,
    Tables,
    check_counter,
    create_format,
    identify_catalog,
    probe_conditions,
    read_format,
)
from loaders.tables.typed_key import TypedKey
from loaders.threads import Threads, map_bounded, run_bounded

if TYPE_CHECKING:
    from accel.history.store.keys import SystemKeys


MILLISECONDS = 1000

logger = logging.getLogger(__name__)


class ObjectAccess(Protocol):
    """The means to open, read and write objects: all that merging needs. Threads: any."""

    @property
    def store(self) -> ObjectStore:
        """The store of the objects."""
        ...

    @property
    def layout(self) -> ObjectLayout:
        """The keys of objects."""
        ...

    @property
    def executor(self) -> Executor:
        """Sends the requests of one step in parallel."""
        ...

    @property
    def settings(self) -> CatalogSettings:
        """Settings, with the maximum number of simultaneous requests."""
        ...

    @property
    def system(self) -> Components:
        """Clock, sleep and random source."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class CatalogParts:
    """The parts of one opened catalog. Threads: any.

    Args:
        store: the store of the catalog and its objects.
        layout: the keys of objects.
        format: what all users of this catalog agree on.
        keys: the keys of the catalog.
        ids: allocates object ids.
        executor: sends the requests of one step in parallel.
        loader: opens object indexes, on its own threads.
        ends: the ends of open streams that this process knows.
        settings: choices of this process.
        system: clock, sleep and random source.
        lifetime: until the catalog is closed, in the process that these parts were made for.
        threads: all thread pools, ended when the catalog is closed.
    """

    store: ObjectStore
    layout: ObjectLayout
    format: FormatRecord
    keys: CatalogKeys
    ids: IdBlocks
    executor: Executor
    loader: ObjectIndexLoader
    ends: KnownEnds
    settings: CatalogSettings
    system: Components
    lifetime: Lifetime
    threads: tuple[Executor, ...]

    def now_ms(self) -> int:
        """The current time by the store's clock, in milliseconds since 1970. One request each 10 minutes."""
        measured(self.system)
        return milliseconds(self.system.clock())

    def open_all(self, node_id: int, refs: Iterable[ObjectRef]) -> Iterator[OpenedObject]:
        """Open the indexes of objects, a bounded number at once, and yield them in the order of `refs`.

        Raises:
            What `ObjectIndexLoader.open` raises.
        """
        wanted = ((node_id, ref) for ref in refs)
        return (load.result() for _, load in open_bounded(self.loader, wanted, self.settings.parallel_requests))


def open_bounded(
    loader: ObjectIndexLoader, wanted: Iterable[tuple[int, ObjectRef]], at_once_max: int
) -> Iterator[tuple[ObjectRef, Future[OpenedObject]]]:
    """Open the indexes of (node id, object) pairs, a bounded number at once; yields the loads in order, done or not."""
    refs: deque[ObjectRef] = deque()

    def begin(pair: tuple[int, ObjectRef]) -> Future[OpenedObject]:
        node_id, ref = pair
        refs.append(ref)
        return loader.open(node_id, ref).result

    return ((refs.popleft(), load) for load in run_bounded(begin, wanted, at_once_max))


Opened = tuple[ObjectRef, OpenedObject | AccelError]
"""An object as the caller described it, and its opened index or the error."""


def open_each(parts: ObjectAccess, wanted: Iterable[tuple[int, ObjectRef]]) -> Iterator[Opened]:
    """Open the indexes of (node id, object) pairs, a bounded number at once, and yield them in order.

    For an object that cannot be opened, the error is yielded, and the next ones follow. One ranged GET an object.
    """
    at_once = parts.settings.parallel_requests
    executor = Threads(at_once, "accel-existing")
    try:
        # A separate loader: the catalog's loader may remember indexes of objects that are deleted by now.
        loader = ObjectIndexLoader(parts.store, parts.layout, executor, cache_bytes_max=0)
        for ref, load in open_bounded(loader, wanted, at_once):
            yield ref, _result(load)
    finally:
        # The threads are not waited for. If the caller stops iterating half-way, the garbage collector runs this block,
        # possibly while a thread is being started, under a lock that the threads to wait for need as well.
        executor.shutdown(wait=False, cancel_futures=True)


def _result(load: Future[OpenedObject]) -> OpenedObject | AccelError:
    try:
        return load.result()
    except AccelError as error:
        return error


# Making and opening

T = TypeVar("T")


def make_catalog(
    store: ObjectStore, wanted: FormatRecord, settings: CatalogSettings, system: Components
) -> tuple[str, ...]:
    """Make the tables of a catalog, and then its format record, which marks it as complete. Safe to repeat.

    Returns:
        What a user should know about the store of a new catalog: see `ObjectCatalog.init`.

    Raises:
        CommitRefused: the store contains a catalog with another format record, complete or begun.
        CatalogDamaged: the store contains a catalog whose format record and other required keys are missing.
        RequestRefused: the endpoint does not enforce conditions on writes.
    """
    from accel.history.store.keys import SystemKeys  # noqa: PLC0415 - a lookup needs no history

    notes: tuple[str, ...] = ()
    record = read_format(store)
    if record is None:
        quotes, catalog_id = probe_conditions(store, system.nonce), system.nonce().hex()
        wanted = msgspec.structs.replace(wanted, if_match_quotes=quotes, catalog_id=catalog_id)
        with Threads(settings.parallel_requests, "accel-init") as executor:
            keys = CatalogKeys(catalog_tables(store, wanted, system))
            shared = SystemKeys(keys.tables)
            if _is_in_use(store, keys):
                wanted = _of_its_life(store, keys, shared, wanted)
            else:
                notes = tuple(_notes(store, wanted.namespace, system))
                wanted = _make_tables(keys, shared, wanted, executor)
        record = create_format(store, wanted, system.nonce, sleep=system.sleep, jitter=system.jitter)
    _refuse_other_choices(record, wanted, f"at {FORMAT_KEY!r}")
    return notes


PAGES_LOOKED_AT_MAX = 100
"""Pages of the store's listing that `init` looks at for objects in the namespace of a new catalog."""


def _notes(store: ObjectStore, namespace: str, system: Components) -> Iterator[str]:
    layout, keys_max = ObjectLayout(namespace=namespace), PAGES_LOOKED_AT_MAX * LIST_PAGE_KEYS_MAX
    keys, objects, size_bytes = 0, 0, 0
    try:
        for info in store.list("", limit=keys_max):
            keys += 1
            if layout.parse_object_key(info.key) is not None:
                objects, size_bytes = objects + 1, size_bytes + info.size_bytes
    except AccessDenied as error:
        yield f"the store could not be listed: objects of another system in namespace {namespace!r} would stop writers"
        logger.debug("init: %s", error)
    where = f"among the first {keys_max} keys; the others were not looked at" if keys == keys_max else "in the store"
    if objects:
        yield (
            f"expected no objects in namespace {namespace!r}, found {objects} of {size_bytes} bytes {where}: import "
            "them if they are to be this catalog's; if another system writes them, use another prefix or namespace"
        )
    elif keys == keys_max:
        yield f"no objects in namespace {namespace!r} were found {where}"
    with suppress(StoreUnavailable):  # nothing depends on the answer: `doctor` asks again
        if not keeps_marks(store, system.nonce):
            yield NO_MARKS


NO_MARKS = (
    "the store does not keep the metadata of objects (accelmark), which prove who wrote them: gc will not delete "
    "objects there, but for those of rows with a checksum, and an object at the key of a new one stops its writer"
)


def keeps_marks(store: ObjectStore, nonce: Callable[[], bytes]) -> bool:
    """Whether a store returns the marks that objects are written with. Three requests: a key below `PROBE_PREFIX`.

    Args:
        store: the store.
        nonce: returns 16 random bytes.

    Raises:
        StoreError: the key could not be written or read.
    """
    key, mark = PROBE_PREFIX + nonce().hex(), ObjectLayout().mark(0, nonce)
    try:
        store.put(key, b"mark", mark=mark)
        return store.get_range(key, 0, 1).mark == mark
    finally:
        with suppress(StoreError):
            store.delete(key)


def existing_format(store: ObjectStore) -> FormatRecord:
    """The format record of an existing catalog. One request; nothing is written.

    Raises:
        CatalogMissing: the store contains no catalog.
        FormatTooNew: a newer release made the catalog.
    """
    record = read_format(store)
    if record is None:
        raise CatalogMissing(f"expected a catalog, found nothing at {FORMAT_KEY!r}")
    return record


def catalog_tables(store: ObjectStore, record: FormatRecord, system: Components) -> Tables:
    """The tables of a bucket, with conditional writes in the form that its endpoint expects."""
    return Tables(
        store,
        nonce=system.nonce,
        sleep=system.sleep,
        jitter=system.jitter,
        if_match_quotes=record.if_match_quotes,
    )


def catalog_parts(
    store: ObjectStore,
    record: FormatRecord,
    settings: CatalogSettings,
    system: Components,
    threads: tuple[Executor, Executor] | None = None,
) -> CatalogParts:
    """The parts of an existing catalog, for one process. No request.

    Args:
        store: the store of the catalog.
        record: its format record.
        settings: choices of this process.
        system: clock, sleep and random source.
        threads: for the requests of a step, and for opening objects; None = new thread pools.
    """
    lifetime = Lifetime("a catalog", system.process_id)
    executor, loading = threads or (
        Threads(settings.parallel_requests, "accel-catalog-requests", lifetime=lifetime),
        Threads(settings.parallel_requests, "accel-catalog-objects", lifetime=lifetime),
    )
    layout = ObjectLayout(namespace=record.namespace, catalog_id=record.catalog_id)
    keys = CatalogKeys(catalog_tables(store, record, system))
    return CatalogParts(
        store=store,
        layout=layout,
        format=record,
        keys=keys,
        ids=IdBlocks(keys.object_ids(), settings.ids_block, CatalogDamaged),
        executor=executor,
        loader=ObjectIndexLoader(store, layout, loading),
        ends=KnownEnds(settings.checkpoint_commits),
        settings=settings,
        system=of_store(store, system),
        lifetime=lifetime,
        threads=(executor, loading),
    )


def identified(parts: CatalogParts) -> CatalogParts:
    """The same parts, of a catalog that has an id now. One request, or two.

    Raises:
        StoreError, TableError: the format record could not be read or written.
    """
    system = parts.system
    record = identify_catalog(parts.store, system.nonce, sleep=system.sleep, jitter=system.jitter)
    return replace(parts, format=record, layout=replace(parts.layout, catalog_id=record.catalog_id))


def _make_tables(keys: CatalogKeys, shared: SystemKeys, record: FormatRecord, executor: Executor) -> FormatRecord:
    """Make all keys but the format record, and return the record to write: with the id of the call that came first."""
    from accel.history.store.keys import make_system_tables  # noqa: PLC0415 - a lookup needs no history

    map_bounded(executor, keys.tables.create_table, TABLES)
    choices = keys.format_copy()
    begun = choices.create_if_absent(record).value
    _refuse_other_choices(begun, record, f"begun, in {choices.where}")
    keys.directory().create_if_absent(NodeDirectory())
    keys.object_ids().create_if_absent(0)
    make_system_tables(shared)

    def make_shard(number: int) -> None:
        keys.shard(number).create_if_absent(StreamShard(number))

    map_bounded(executor, make_shard, range(record.stream_buckets))
    return msgspec.structs.replace(record, catalog_id=begun.catalog_id)


def _is_in_use(store: ObjectStore, keys: CatalogKeys) -> bool:
    """Whether a node has written here, ids were allocated, or an import was begun. Four requests.

    The bucket itself is listed for the keys of node lists: they are found even if the marker of their table is gone.
    """
    folder = table_folder(TABLES_PREFIX, NODE_LISTS)
    if any(parse_node_key(info.key.removeprefix(folder)) is not None for info in store.list(folder, limit=2)):
        return True
    directory, counter = _value(keys.directory()), _value(keys.object_ids())
    if (directory is not None and len(directory.node_ids)) or counter:
        return True
    return keys.is_importing()


def _of_its_life(store: ObjectStore, keys: CatalogKeys, shared: SystemKeys, wanted: FormatRecord) -> FormatRecord:
    """The lost format record of a catalog in use, with the generation in its directory.

    Raises:
        CommitRefused: the catalog was made with other choices.
        CatalogDamaged: other keys are missing too, or the counter is not above the ids in use.
    """
    from accel.history.store.keys import make_system_tables  # noqa: PLC0415 - a lookup needs no history

    choices = keys.format_copy()
    chosen = require(_value(choices), choices.where)
    _refuse_other_choices(chosen, wanted, f"in use, in {choices.where}")
    for name in TABLES:
        if not keys.tables.table_exists(name):
            raise CatalogDamaged(f"expected table {name!r} of a catalog that is in use, found none: it was deleted")
    directory = require(_value(keys.directory()), keys.directory().where)
    folder = table_folder(TABLES_PREFIX, NODE_LISTS)
    listed = (parse_node_key(info.key.removeprefix(folder)) for info in store.list(folder))
    nodes = {node_id for node_id in listed if node_id is not None} | set(directory.node_ids.tolist())
    lists = [require(_value(keys.node_list(node_id)), keys.node_list(node_id).where) for node_id in sorted(nodes)]
    numbers = range(wanted.stream_buckets)
    shards = [require(_value(keys.shard(number)), keys.shard(number).where) for number in numbers]
    counter = keys.object_ids()  # read after the ids
    check_counter(_value(counter), highest_id(*lists, *shards), counter.where, CatalogDamaged)
    make_system_tables(shared, is_initialised=True)  # raises if one is missing: they were made before any node's write
    return msgspec.structs.replace(wanted, generation=directory.generation, catalog_id=chosen.catalog_id)


def are_same_choices(one: FormatRecord, other: FormatRecord) -> bool:
    """Whether two format records are equal but for what no caller chooses: ETag quotes, generation, catalog id."""
    names = ("if_match_quotes", "generation", "catalog_id")
    return msgspec.structs.replace(one, **{name: getattr(other, name) for name in names}) == other


def _refuse_other_choices(found: FormatRecord, wanted: FormatRecord, where: str) -> None:
    if not are_same_choices(found, wanted):
        raise CommitRefused(f"expected no catalog {where}, or one of {wanted}, found {found}")


def _value(key: TypedKey[T]) -> T | None:
    try:
        seen = key.read()
    except TableMissing:
        return None
    return None if seen is None else seen.value


# The place of written objects


def first_unproven(parts: CatalogParts, refs: Iterable[ObjectRef]) -> ObjectRef | None:
    """The first object that this process has no proof of being at its key in this store; None if there is none.

    A folder may have been put back from a copy since the object was written there: then no proof counts.

    Raises:
        CommitRefused: an object was written at another key.
    """
    unproven, is_folder = None, folder_of(parts.store) is not None
    for ref in refs:
        key = parts.layout.object_key(ref.object_id)
        if ref.proof is not None and ref.proof.key != key:
            raise CommitRefused(
                f"object {ref.object_id}: expected it at {key!r}, where readers look, found it written at "
                f"{ref.proof.key!r}: write it with the layout of this catalog, namespace {parts.layout.namespace!r}"
            )
        if unproven is None and (is_folder or ref.proof is None or ref.proof.store is not parts.store):
            unproven = ref
    return unproven


def refuse_misplaced(parts: CatalogParts, ref: ObjectRef) -> None:
    """Check that an object is at its key, where readers look for it, with its size. One request.

    Raises:
        CommitRefused: the object is not there, or has another size.
        StoreError: the request failed.
    """
    key = parts.layout.object_key(ref.object_id)
    size_bytes = stored_size_bytes(parts.store, key)
    if size_bytes is None or (size_bytes != ref.size_bytes and not ref.is_composite and ref.size_bytes != UNKNOWN):
        found = "none" if size_bytes is None else f"one of {size_bytes}"
        raise CommitRefused(
            f"object {ref.object_id}: expected an object of {ref.size_bytes} bytes at {key!r}, where readers of "
            f"namespace {parts.layout.namespace!r} look, found {found}"
        )
