"""What docs/reference/events.md says of the bytes of transactions is what the code has."""

from __future__ import annotations

import struct
from uuid import UUID

from accel.streams.rules.routing import key_position
from accel.streams.rules.transaction_data import HEADER, decode_transaction, encode_transaction
from accel.streams.uploads import MERGE_INTENT
from loaders.layout import merging_key, transaction_key
from tests.docs.pages import dumps, fields, section

HEADING = "Data of a transaction"
TEXT = section(HEADING)


def dump() -> bytes:
    """The example."""
    [data] = dumps(HEADING)
    return data


def test_the_example_says_what_it_is_said_to_say() -> None:
    events = decode_transaction(dump(), "docs/reference/events.md")
    assert events.payloads == [b"paid", b"shipped"]
    assert events.positions.tolist() == [key_position(b"order-17"), key_position(b"order-18")]
    assert encode_transaction(events) == dump()


def test_fields_stand_where_the_page_says() -> None:
    rows = {row[2]: row for row in fields(TEXT)}
    assert HEADER.size == int(rows["positions"][0])
    assert struct.unpack_from(">I", dump(), int(rows["count"][0])) == (2,)
    assert rows["magic"][3] == "ATxn"


def test_the_form_of_an_intent_stands_in_the_page() -> None:
    assert f"`{MERGE_INTENT.name}` record" in TEXT


def test_keys_are_those_of_the_page() -> None:
    stream, transaction = UUID(int=7), UUID(int=9)
    wanted = TEXT.replace("<stream's unique id>", str(stream)).replace("<transaction id>", str(transaction))
    wanted = wanted.replace("<node>", "4").replace("<epoch of the node's session, 20 digits>", f"{2:020d}")
    wanted = wanted.replace("<number of the merge>", "3")
    assert f"<prefix>/{transaction_key(stream, transaction)}" in wanted
    assert f"<prefix>/{merging_key(4, 2, 3)}" in wanted
