"""A reader that follows the catalog by listings: what it costs, in which order it reads, and what it does if they lie.

A listing that lags shows the keys as they stood some time ago; a server may do so as long as it likes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from accel import ReadAccelerator
from accel.catalog import CatalogSettings, NodeWriter
from accel.catalog.keys import STREAM_SHARDS
from accel.catalog.refresh import LISTING_PAUSE_SECONDS, BuiltImage, build_image
from accel.catalog.shard_writes import move_stream_objects
from accel.errors import AccessDenied, ImageTooOld
from accel.image import MetadataImage
from loaders.store import ObjectStore
from loaders.store.base import ListPage
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.world import FORMAT, Watched, World

Answer = TypeVar("Answer")

SHARDS = FORMAT.stream_buckets
CONFIRM_SECONDS = FORMAT.max_image_age_seconds / 2


class Follower:
    """A bucket with two nodes, a reader of its own connection, and what that asks for."""

    def __init__(self, store: Callable[[ObjectStore], DecoratedStore] = DecoratedStore) -> None:
        self.world = World()
        self.catalog = self.world.open()
        self.writers = {node_id: self.catalog.open_node(node_id) for node_id in (4, 5)}
        for node_id, writer in self.writers.items():
            writer.open_streams([node_id])
            self.world.upload(writer, {node_id: (0, 10)})
        self.store = store(self.world.memory)
        self.asked: list[str] = []
        self.before_request: Callable[[str], object] = lambda _: None
        self.reader = self.world.open(Watched(self.store, self._hear))
        self.reader.refresh()
        self.asked.clear()

    def _hear(self, call: StoreCall) -> None:
        what = f"{call.operation} {call.key.removeprefix('accel/tables/')}"
        self.asked.append(what)
        self.before_request(what)

    def follow(self) -> MetadataImage:
        self.asked.clear()
        return self.reader.follow().image

    @property
    def writer(self) -> NodeWriter:
        return self.writers[4]


class Lagging(DecoratedStore):
    """Its listings show what it held when they were last let catch up."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.shown: dict[tuple[str, str], ListPage] | None = None

    def list_page(self, prefix: str, start_after: str = "", limit: int = 1000, token: str = "") -> ListPage:
        now = super().list_page(prefix, start_after, limit, token)
        return now if self.shown is None else self.shown.setdefault((prefix, start_after), now)


def denied(store: ObjectStore) -> DecoratedStore:
    """May be read, and not be listed."""
    return Watched(store, refuse_listings)


def refuse_listings(call: StoreCall) -> None:
    if call.operation == "list":
        raise AccessDenied("list", call.key, "AccessDenied")


class OtherETags(DecoratedStore):
    """Its listings have other ETags than its objects."""

    def list_page(self, prefix: str, start_after: str = "", limit: int = 1000, token: str = "") -> ListPage:
        page = super().list_page(prefix, start_after, limit, token)
        return replace(page, objects=[replace(each, etag=each.etag[::-1] + "-1") for each in page.objects])


LIST_LISTS, LIST_SHARDS = "list node", "list stream-buckets/"


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_a_follower_with_nothing_new_asks_twice_whatever_there_is(follower: Follower) -> None:
    before = follower.reader.image()
    assert follower.follow() is before
    assert follower.asked == [LIST_LISTS, LIST_SHARDS]


def test_a_commit_costs_a_follower_one_get_besides(follower: Follower) -> None:
    before = follower.reader.image()
    follower.world.upload(follower.writer, {4: (10, 20)})
    after = follower.follow()
    assert len(after.nodes[4]) == 2
    assert after.nodes[5] is before.nodes[5]
    assert follower.asked == [LIST_LISTS, "get_if_changed node-lists/0000000004", LIST_SHARDS]


def test_new_streams_and_new_nodes_are_seen(follower: Follower) -> None:
    follower.writer.open_streams([77])
    assert 77 in follower.follow().streams
    assert len(follower.asked) == 3
    writer = follower.catalog.open_node(9)
    writer.open_streams([99])
    follower.world.upload(writer, {99: (0, 10)})
    image = follower.follow()
    assert len(image.nodes[9]) == 1
    assert 99 in image.streams
    follower.catalog.trim({77: 0, 99: 5})
    assert follower.follow().streams[99].start_offset == 5


# The order


def upload_stream_object(follower: Follower) -> int:
    """Commit an object of stream 4 alone; it stands in its node's list until it is moved to the shard."""
    [object_id] = follower.writer.prepare()
    held = follower.world.put_stream_object(object_id, 4, 10, 20)
    follower.writer.register_stream_object(4, held)
    return object_id


def holds(image: MetadataImage, object_id: int) -> bool:
    return any(each.ref.object_id == object_id for each in image.streams[4].stream_objects)


@pytest.mark.parametrize("at", range(4))
def test_an_object_that_moves_from_a_list_to_a_shard_is_seen_wherever_that_comes_between(at: int) -> None:
    follower = Follower()
    object_id = upload_stream_object(follower)
    assert holds(follower.follow(), object_id)
    asked = 0

    def move(_: str) -> None:
        nonlocal asked
        asked += 1
        if asked == at + 1:
            move_stream_objects(follower.catalog.parts, 4)

    follower.before_request = move
    for _ in range(3):
        assert holds(follower.follow(), object_id)
    assert not len(follower.catalog.refresh_state().lists[4].value.stream_objects)


def test_shards_before_lists_would_miss_an_object_that_moves_and_lists_before_shards_do_not(follower: Follower) -> None:
    object_id = upload_stream_object(follower)
    before = follower.catalog.refresh_state()
    move_stream_objects(follower.catalog.parts, 4)
    after = follower.catalog.refresh_state()

    def image(*, lists_first: bool) -> MetadataImage:
        lists, shards = (before, after) if lists_first else (after, before)
        return build_image("test", lists.node_lists(), [each.value for each in shards.shards], 1).image

    assert holds(image(lists_first=True), object_id)
    assert not holds(image(lists_first=False), object_id)


# Listings that lie


def test_what_has_left_a_list_is_looked_for_in_the_shards_themselves() -> None:
    follower = Follower(Lagging)
    assert isinstance(follower.store, Lagging)
    object_id = upload_stream_object(follower)
    assert holds(follower.follow(), object_id)
    shards = "accel/tables/stream-buckets/"
    follower.store.shown = {(shards, ""): follower.store.list_page(shards)}
    move_stream_objects(follower.catalog.parts, 4)
    assert holds(follower.follow(), object_id)
    assert LIST_SHARDS not in follower.asked
    assert len([each for each in follower.asked if each.startswith("get_if_changed stream-buckets/")]) == SHARDS
    assert holds(follower.follow(), object_id)
    assert len(follower.asked) == 3, "the listing of the shards is behind by one of them"


def test_what_a_lagging_listing_hides_is_seen_before_the_image_is_too_old() -> None:
    follower = Follower(Lagging)
    assert isinstance(follower.store, Lagging)
    source = follower.reader.images()
    follower.store.shown = {}
    source.wait_newer(source.current().version, 0)
    follower.world.upload(follower.writer, {4: (10, 20)})
    clock, started = follower.world.clock, follower.world.clock.seconds
    while len(source.current().nodes[4]) == 1:
        assert source.age_seconds() == clock.seconds - started
        clock.seconds += 1.0
    assert CONFIRM_SECONDS <= clock.seconds - started <= CONFIRM_SECONDS + 5
    assert source.age_seconds() == 0


def test_listings_alone_keep_no_image_young() -> None:
    follower = Follower()
    source = follower.reader.images()

    def refuse(asked: str) -> None:
        if not asked.startswith("list"):
            raise AccessDenied("get", asked, "AccessDenied")

    follower.before_request = refuse
    follower.world.clock.seconds += CONFIRM_SECONDS - 1
    source.current()
    follower.world.clock.seconds += CONFIRM_SECONDS + 2
    with pytest.raises(ImageTooOld):
        source.current()


@pytest.mark.parametrize("store", [denied, OtherETags])
def test_where_listings_do_not_help_keys_are_asked_and_no_listing_for_a_minute(
    store: Callable[[ObjectStore], DecoratedStore],
) -> None:
    follower = Follower(store)
    follower.world.upload(follower.writer, {4: (10, 20)})
    assert len(follower.follow().nodes[4]) == 2
    keys = 1 + len(follower.writers) + SHARDS
    for start in (20, 30):
        follower.world.upload(follower.writer, {4: (start, start + 10)})
        follower.follow()
        assert len(follower.asked) == keys
        assert not [each for each in follower.asked if each.startswith("list")]
    follower.world.clock.seconds += LISTING_PAUSE_SECONDS
    follower.follow()
    assert follower.asked[0] == LIST_LISTS


def test_who_must_know_of_all_that_was_committed_asks_without_listings() -> None:
    follower = Follower(Lagging)
    assert isinstance(follower.store, Lagging)
    with ReadAccelerator(follower.reader.images(), follower.store, system=follower.world.system) as accelerator:
        follower.store.shown = {}
        accelerator.follow()
        follower.world.upload(follower.writer, {4: (10, 20)})
        follower.world.clock.seconds += 5
        assert not accelerator.follow(), "the listing does not show it"
        follower.asked.clear()
        assert not accelerator.follow()
        assert not follower.asked, "somebody has just asked"
        assert accelerator.refresh()
        assert accelerator.image_age_seconds == 0
        assert len(accelerator.get_objects(4, 0).objects) == 2


def test_an_older_etag_in_a_listing_never_leads_back() -> None:
    follower = Follower(Lagging)
    assert isinstance(follower.store, Lagging)
    follower.store.shown = {}
    follower.follow()
    follower.world.upload(follower.writer, {4: (10, 20)})
    newer = follower.reader.refresh()
    assert len(newer.nodes[4]) == 2
    assert follower.follow() is newer
    assert follower.asked.count("get_if_changed node-lists/0000000004") == 1


def test_of_two_refreshes_at_once_each_returns_all_that_was_written_before_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thread read an old list and a new shard, the other one the reverse: the later one was dropped."""
    world = World(settings=CatalogSettings(parallel_requests=16, ids_block=64))
    with world.session(4) as (_, writer):
        world.upload(writer, {4: (0, 10)})
        is_at_shards, may_read_shards, main = threading.Event(), threading.Event(), threading.get_ident()
        slow: list[threading.Thread] = []
        held: list[str] = []

        def hear(call: StoreCall) -> None:
            if slow and f"/{STREAM_SHARDS}/" in call.key and len(held) < SHARDS:
                held.append(call.key)
                if len(held) == SHARDS:
                    is_at_shards.set()
                may_read_shards.wait(60)

        def built(*args: Any, **named: Any) -> BuiltImage:
            if slow and slow[0].is_alive() and threading.get_ident() == main:  # this thread has read everything
                writer.open_streams([5])
                may_read_shards.set()
                slow[0].join()
            return build_image(*args, **named)

        monkeypatch.setattr("accel.catalog.refresh.build_image", built)
        with world.open(Watched(world.memory, hear)) as reader:
            reader.refresh()
            slow.append(threading.Thread(target=reader.refresh))
            slow[0].start()
            assert is_at_shards.wait(60)
            uploaded = world.upload(writer, {4: (10, 20)})
            image = reader.refresh()
            assert not slow[0].is_alive()
            assert uploaded.object_id in image.node(4).position_of
            assert {4, 5} <= set(image.streams)
            assert reader.refresh() is image
