"""Names are taken as plain text, and what is stored under a bad name keeps no other name from being listed."""

from __future__ import annotations

import enum
import logging
import re
from typing import Any
from uuid import uuid4

import pytest

import accel
from accel.errors import InvalidArgument
from accel.history.store.keys import LISTED
from accel.streams.groups import ReaderGroup
from loaders.layout import encode_name
from loaders.store import MemoryStore
from tests.accel.test_values_at_the_door import TEXTS

RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|[0-9a-f]{16,}")


class Key(str, enum.Enum):  # noqa: UP042 - the text of a StrEnum is its value
    FIRST = "first"


def stored(name: Any, key: Any) -> tuple[set[str], list[tuple[bytes, bytes]], list[str]]:
    """What a program stores that has this name for everything: keys without random parts, and the events it reads."""
    store = MemoryStore()
    record = accel.FormatRecord(namespace=name)
    with accel.connect(store, create=record) as streams:
        streams.create_scope(name)
        streams.create_stream(name, name, accel.StreamConfiguration(tags=(name,)))
        with streams.writer(name, name) as writer:
            writer.write(b"1", key)
            writer.commit_transaction(writer.begin_transaction(writer_id=name))
        streams.group(name, name, name)
        with streams.group_reader(name, name, name, name) as reader:
            events = [(each.payload, b"") for each in [reader.next_event(0)] if each is not None]
        page = streams.stream_store.list_streams(name, tag=name)
        names = [*streams.stream_store.scopes(), *page.names, *ReaderGroup.names(streams.stream(name, name))]
    return {RANDOM.sub("*", found.key) for found in store.list("")}, events, names


@pytest.mark.parametrize("kind", TEXTS)
def test_each_kind_of_text_stores_what_its_value_stores(kind: str) -> None:
    found = stored(TEXTS[kind], Key.FIRST)
    assert found == stored("shop", "first")
    assert found[2] == ["shop"] * 3


NO_NAMES = ("../../evil", "-", ".hidden", "a b", "x" * 201, "shop/orders", "no-id/")


def store_bad_keys(store: MemoryStore, folder: str, prefix: str) -> None:
    """What an earlier release, or another program, may have stored under names that are none."""
    for name in NO_NAMES:
        unique_id = f"/{uuid4()}" if prefix and name != "no-id/" else ""
        store.put(folder + encode_name(f"{prefix}{name}{unique_id}"), b"")


def test_a_stored_name_that_is_none_is_passed_over_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    with accel.connect(store, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders")
        streams.group("shop", "orders", "billing")
        folders = {found.key.rpartition("/")[0] + "/" for found in store.list("accel/tables/")}
        for part, prefix in (("_system%2Fscopes/", LISTED), ("shop%2FstreamsInScope", LISTED), ("readerGroups", "")):
            (folder,) = [each for each in folders if part in each]
            store_bad_keys(store, folder, prefix)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert list(streams.stream_store.scopes()) == ["shop"]
                assert list(streams.stream_store.streams("shop")) == ["orders"]
                assert streams.stream_store.list_streams("shop").names == ("orders",)
                assert list(ReaderGroup.names(streams.stream("shop", "orders"))) == ["billing"]
        named = [record.getMessage() for record in caplog.records if "left out of listings" in record.getMessage()]
        assert len(named) == len(set(named)) == 3 * len(NO_NAMES)
        assert sum("../../evil" in text for text in named) == 3
        streams.create_scope("later")
        assert list(streams.stream_store.scopes()) == ["later", "shop"]
        streams.stream_store.recover()
        with pytest.raises(InvalidArgument):
            streams.create_scope("../../evil")
        streams.stream("shop", "orders").seal()
        streams.stream_store.delete_stream("shop", "orders")
        streams.stream_store.delete_scope("shop")
        assert list(streams.stream_store.scopes()) == ["later"]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("url", value) for value in (b"memory://a", None, 5, object())),
        *(("create", value) for value in ("false", 1, None, "yes")),
        *(("node_id", value) for value in (True, 1.0, "4", 2**70, -1)),
        *(("owners", value) for value in ("http://10.0.0.7:8080", [b"http://10.0.0.7:8080"], [None])),
        *(("secret", value) for value in (b"0123456789abcdef", 5)),
        ("listen", b"localhost:0"),
        ("address", 5),
    ],
)
def test_a_connection_is_not_made_of_other_values_and_nothing_is_stored(argument: str, value: object) -> None:
    store = MemoryStore()
    given: dict[str, Any] = {"url": store, "create": True} | {argument: value}

    def use() -> None:
        with accel.connect(**given) as streams:
            streams.create_scope("shop")
            streams.create_stream("shop", "orders")
            streams.writer("shop", "orders")

    with pytest.raises(ValueError, match="expected"):
        use()
    assert argument == "node_id" or not list(store.list(""))
