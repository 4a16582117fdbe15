"""What docs/how-to/upgrade.md says that programs of an older release do, once a newer one has written.

A newer release is one that writes forms of a higher version; here such bytes are put in the place of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import msgspec
import pytest

from accel import ReadAccelerator
from accel.catalog import ObjectCatalog
from accel.catalog.keys import NODE_LISTS, STREAM_SHARDS, node_key, shard_key
from accel.errors import FormatTooNew, ImageTooOld
from accel.system import SYSTEM
from loaders.layout import FORMAT_KEY, ObjectLayout
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore, open_store
from loaders.tables import FORMAT_FORM, FormatRecord, Tables
from loaders.tables.envelope import decode_stored, encode_stored
from loaders.tables.format_record import FORMAT_PLACE, FORMAT_VERSION
from tests.accel.cli.worlds import run

NODE = 4
STREAM = 420_000


@pytest.fixture
def url() -> str:
    """A store with a catalog of one node, one stream and one bucket."""
    url = f"memory://{uuid4().hex}"
    ObjectCatalog.init(open_store(url), FormatRecord(namespace="shop", stream_buckets=1))
    with ObjectCatalog.open(open_store(url)) as catalog, catalog.open_node(NODE) as writer:
        writer.open_streams([STREAM])
    return url


@pytest.fixture
def store(url: str) -> ObjectStore:
    """The same store."""
    return open_store(url)


@pytest.fixture
def catalog(store: ObjectStore) -> Iterator[ObjectCatalog]:
    """Its catalog, as this release opens it."""
    with ObjectCatalog.open(store) as opened:
        yield opened


def write_newer(store: ObjectStore, table: str, key: str) -> None:
    """Give a key the next version of its form."""
    found = Tables(store, nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter).table(table)
    entry = found.get(key)
    newer = bytearray(entry.value)
    newer[1 + newer[0] + 1] += 1
    found.update(key, bytes(newer), entry.version)


def test_a_reader_serves_the_image_at_hand_until_it_is_too_old(store: ObjectStore) -> None:
    now_seconds = [0.0]
    system = replace(SYSTEM, timer=lambda: now_seconds[0])
    opened = ObjectCatalog.open(store, system=system)
    with opened as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
        before = accelerator.get_objects(stream_id=STREAM, start=0, end=10)
        write_newer(store, NODE_LISTS, node_key(NODE))
        with pytest.raises(FormatTooNew):
            catalog.refresh()
        now_seconds[0] = catalog.format.max_image_age_seconds - 1
        assert accelerator.get_objects(stream_id=STREAM, start=0, end=10) == before
        now_seconds[0] = catalog.format.max_image_age_seconds + 1
        with pytest.raises(ImageTooOld):
            accelerator.get_objects(stream_id=STREAM, start=0, end=10)


def written(store: ObjectStore, object_id: int) -> ObjectRef:
    """What stands for an object that was written where readers look."""
    key = ObjectLayout(namespace="shop").object_key(object_id)
    store.put(key, bytes(1000))
    return ObjectRef(object_id, 1000, 36)


def test_an_open_session_commits_uploads_and_opens_no_streams(store: ObjectStore, catalog: ObjectCatalog) -> None:
    writer = catalog.open_node(NODE)
    write_newer(store, STREAM_SHARDS, shard_key(0))
    [object_id] = writer.prepare()
    writer.commit_upload(written(store, object_id), {STREAM: (0, 10)})
    with pytest.raises(FormatTooNew):
        writer.open_streams([1])
    with pytest.raises(FormatTooNew):
        catalog.open_node(NODE)


def test_a_commit_to_a_newer_list_is_refused_and_changes_nothing(store: ObjectStore, catalog: ObjectCatalog) -> None:
    writer = catalog.open_node(NODE)
    [object_id] = writer.prepare()
    key = node_key(NODE)
    write_newer(store, NODE_LISTS, key)
    stands = store.get(f"accel/tables/{NODE_LISTS}/{key}").body
    with pytest.raises(FormatTooNew):
        writer.commit_upload(written(store, object_id), {STREAM: (0, 10)})
    assert store.get(f"accel/tables/{NODE_LISTS}/{key}").body == stands


def test_the_commands_of_the_page_show_the_version_of_a_key_and_refuse_a_newer_one(
    url: str, store: ObjectStore
) -> None:
    key = node_key(NODE)
    shown = run("table", "get", NODE_LISTS, key, "--limit", "1", "--store", url)
    assert "form node-list version 1" in shown.stdout.splitlines()[0]
    listed = run("table", "list", NODE_LISTS, "--limit", "0", "--store", url)
    assert listed.stdout.splitlines() == [key]
    write_newer(store, NODE_LISTS, key)
    for command in (("catalog", "status"), ("table", "get", NODE_LISTS, key)):
        refused = run(*command, "--store", url, "--output", "json")
        assert refused.exit_code == 1
        assert json.loads(refused.stderr)["type"] == "FormatTooNew"


def test_a_newer_layout_opens_no_catalog(store: ObjectStore) -> None:
    found = store.get(FORMAT_KEY)
    stored = decode_stored(found.body, FORMAT_PLACE, etag=found.etag, where=FORMAT_KEY)
    assert stored.value is not None
    record = FORMAT_FORM.decode(stored.value, FORMAT_KEY)
    newer = FORMAT_FORM.encode(msgspec.structs.replace(record, version=FORMAT_VERSION + 1))
    store.put(FORMAT_KEY, encode_stored(replace(stored, value=newer), FORMAT_PLACE))
    with pytest.raises(FormatTooNew, match="format version 2"):
        ObjectCatalog.open(store)
