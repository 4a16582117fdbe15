"""The requests of a catalog that the pages state are those that it sends."""

from __future__ import annotations

import pytest

from accel.catalog import CatalogSettings, ObjectCatalog
from benchmarks.catalog import run_catalog_refresh
from loaders.layout import ObjectLayout
from loaders.object_ref import ObjectRef, Proof
from loaders.store import CountingStore, MemoryStore
from loaders.tables import FormatRecord
from tests.docs.pages import page_named, table_rows


def test_an_upload_is_one_put_and_a_64th_writes_a_checkpoint() -> None:
    store = CountingStore(MemoryStore())
    ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=1))
    with ObjectCatalog.open(store) as catalog, catalog.open_node(4) as writer:
        writer.open_streams([1])
        every = CatalogSettings().checkpoint_commits
        for number in range(3 * every):
            if number == every:
                store.reset()  # ids for a while are there, and so is a first checkpoint
            [object_id] = writer.prepare()
            proof = Proof(ObjectLayout(namespace="shop").object_key(object_id), store)  # as an `ObjectWriter` gives it
            writer.commit_upload(ObjectRef(object_id, 1000, 36, proof=proof), {1: (number, number + 1)})
        counted = store.snapshot().by_operation
    assert every == 64
    assert {name: count.requests for name, count in counted.items()} == {"put": 2 * every + 2}


def test_a_refresh_costs_what_the_catalog_page_says() -> None:
    found = {line.name + line.unit: line for line in run_catalog_refresh()}
    nothing, one = (f"catalog_refresh: {name}" for name in ("nothing new", "one node of ten changed"))
    text = page_named("catalog").read_text()
    told = {row[0]: row[1:] for row in table_rows(page_named("catalog")) if len(row) == 3}
    assert told["a cold image"][0] == f"{found[nothing + 'requests'].peer_value:,}"
    assert told["a refresh with nothing new"] == [f"{found[nothing + 'requests'].value:,}", "0"]
    idle, followed = (
        f"catalog_refresh: following, {name}requests" for name in ("nothing new", "one node of ten changed")
    )
    assert told["following, nothing new"] == [f"{found[idle].value:,}", "0"]
    assert told["following, after one upload"] == [f"{found[followed].value:,}", told["a refresh after one upload"][1]]
    assert told["a refresh after one upload"][0] == f"{found[one + 'requests'].value:,}"
    # What zstd makes of the same numbers differs a little from release to release.
    for line, key in (
        (found[one + "B"].value, "a refresh after one upload"),
        (found[one + "B"].peer_value, "a cold image"),
    ):
        assert int(told[key][1].replace(",", "")) == pytest.approx(line, rel=0.05)
    assert "python -m benchmarks catalog_refresh" in text
