"""What the jobs build is what lookups take: two requests for a cold read, and the same answer as without."""

from __future__ import annotations

import pytest

from accel import ReadAccelerator, Settings, StaticImages
from accel.catalog import ObjectCatalog
from accel.image import MetadataImage
from loaders.store import CountingStore
from spark_jobs.tasks import StoreSpec
from tests.spark_jobs.worlds import fill, job, make_catalog

NODE, STREAM, RARE = 4, 1, 2
OBJECTS = 60


@pytest.fixture
def hinted(bucket: StoreSpec) -> tuple[CountingStore, MetadataImage]:
    """A node of sixty objects, with a pack and a snapshot made by the jobs."""
    store = bucket.open()
    make_catalog(store)
    rows = [
        [(STREAM, at * 10, at * 10 + 10), *([(RARE, at, at + 15)] if at % 15 == 0 else [])] for at in range(OBJECTS)
    ]
    fill(store, NODE, rows)
    for name in ("build-hints",):
        assert job(bucket, name).exit_code == 0
    with ObjectCatalog.open(store) as catalog:
        image = catalog.image()
    store.reset()
    return store, image


@pytest.mark.usefixtures("spark")
def test_a_cold_lookup_makes_two_requests_and_the_first_record_one_more(
    hinted: tuple[CountingStore, MetadataImage],
) -> None:
    store, image = hinted
    with ReadAccelerator(StaticImages(image), store) as accelerator:
        answer = accelerator.get_objects(STREAM, 333, 334, 1)
        assert [(each.start, each.end) for each in answer.objects] == [(330, 340)]
        assert (store.snapshot().gets, answer.rounds) == (2, 2)
        assert next(accelerator.read(STREAM, 333)).base_offset == 330
        assert store.snapshot().gets == 3
        hints = accelerator.stats().hints
    assert (hints.entries, hints.spans_read, hints.spans_wrong) == (OBJECTS, 1, 0)
    assert hints.missing == hints.corrupt == hints.foreign == hints.mixed == hints.stale == 0


@pytest.mark.usefixtures("spark")
def test_answers_are_those_without_hints(hinted: tuple[CountingStore, MetadataImage]) -> None:
    store, image = hinted
    with (
        ReadAccelerator(StaticImages(image), store) as with_hints,
        ReadAccelerator(StaticImages(image), store, settings=Settings(use_hints=False)) as without,
    ):
        assert with_hints.warm([NODE]).filters == OBJECTS
        for stream_id, offset in ((STREAM, 0), (STREAM, 599), (RARE, 0), (RARE, 20), (RARE, 59)):
            expected = without.get_objects(stream_id, offset)
            found = with_hints.get_objects(stream_id, offset)
            assert (found.objects, found.ending) == (expected.objects, expected.ending)
