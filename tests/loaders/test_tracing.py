"""Spans: a lookup that loads, its rounds, loads and requests, across threads; none where nobody records."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from accel import AsyncReadAccelerator, Request, StaticImages
from accel.errors import StoreUnavailable
from accel.testing import Fault, FaultStore
from loaders.threads import DaemonThreads, Threads
from tests.accel.lookup.cluster import STREAM, line_image, line_store, settled


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Where spans are recorded; the module that Accel looks for has this test's provider."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    recorded = ModuleType("opentelemetry.trace")
    vars(recorded).update(vars(opentelemetry.trace), get_tracer=provider.get_tracer)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", recorded)
    yield exporter
    provider.shutdown()


def tree(spans: InMemorySpanExporter) -> dict[str, set[str]]:
    """Names of spans, each with the names of the spans that they are part of."""
    finished = spans.get_finished_spans()
    names = {span.context.span_id: span.name for span in finished if span.context is not None}
    parents: dict[str, set[str]] = {}
    for span in finished:
        parents.setdefault(span.name, set()).add("" if span.parent is None else names[span.parent.span_id])
    return parents


WHOLE = {
    "accel.lookup": {""},
    "accel.round": {"accel.lookup"},
    "accel.load": {"accel.round"},
    "accel.store get_tail": {"accel.load"},
}


def test_a_cold_lookup_is_a_tree_of_spans_across_threads_and_a_warm_one_none(spans: InMemorySpanExporter) -> None:
    with settled(line_store(30), line_image(list(range(30))), use_hints=False) as one:
        answer = one.get_objects(STREAM, 105)
        assert tree(spans) == WHOLE
        finished = spans.get_finished_spans()
        rounds = [span for span in finished if span.name == "accel.round"]
        assert len(rounds) == answer.rounds
        assert sum(attribute(span, "accel.objects") for span in rounds) == answer.objects_opened
        spans.clear()
        one.get_objects(STREAM, 105)
        assert spans.get_finished_spans() == ()


def attribute(span: ReadableSpan, name: str) -> int:
    value = (span.attributes or {})[name]
    assert isinstance(value, int)
    return value


def test_many_lookups_of_one_call_do_not_mix_their_spans(spans: InMemorySpanExporter) -> None:
    with settled(line_store(30), line_image(list(range(30))), use_hints=False) as one:
        one.get_objects_many([Request(STREAM, 5), Request(STREAM, 155), Request(STREAM, 255)])
    assert tree(spans) == WHOLE
    assert sum(span.name == "accel.lookup" for span in spans.get_finished_spans()) == 3


def test_spans_of_asyncio_are_part_of_the_tasks_own(spans: InMemorySpanExporter) -> None:
    async def look_up() -> None:
        async with AsyncReadAccelerator(StaticImages(line_image(list(range(30)))), line_store(30)) as one:
            tracer = sys.modules["opentelemetry.trace"].get_tracer("application")
            with tracer.start_as_current_span("request"):
                await one.get_objects(STREAM, 105)

    asyncio.run(look_up())
    found = tree(spans)
    assert found["accel.lookup"] == {"request"}
    assert found["accel.load"] == {"accel.round"}


def test_a_failed_request_is_a_failed_span_without_the_text_of_its_error(spans: InMemorySpanExporter) -> None:
    store = FaultStore(line_store(1))
    store.schedule(*[Fault.SLOW_DOWN] * 20)
    with settled(store, line_image([0]), use_hints=False) as one, pytest.raises(StoreUnavailable):
        one.get_objects(STREAM, 5)
    failed = {span.name: span for span in spans.get_finished_spans() if not span.status.is_ok}
    assert {"accel.store get_tail", "accel.load", "accel.lookup"} <= failed.keys()
    assert (failed["accel.load"].attributes or {})["error.type"] == "StoreThrottled"
    assert not any(span.events or span.status.description for span in failed.values())


def test_without_the_api_there_are_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    with settled(line_store(3), line_image([0, 1, 2])) as one:
        assert [each.object_id for each in one.get_objects(STREAM, 5, limit=1).objects] == [0]
    assert "opentelemetry.trace" not in sys.modules


WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def test_work_in_threads_has_the_callers_context() -> None:
    WHO.set("caller")
    with Threads(1, "test-context") as pool:
        assert pool.submit(WHO.get).result() == "caller"
        told: list[str] = []
        done = DaemonThreads()
        event = threading.Event()

        def tell() -> None:
            told.append(WHO.get())
            event.set()

        done(tell, "test-daemon")
        assert event.wait(30)
    assert told == ["caller"]
