"""Why was that read slow, and which stream is hot: a sidecar answers both without being set up for it."""

from __future__ import annotations

import msgspec
from click import Context
from click.testing import CliRunner
from prometheus_client import generate_latest

from accel import Settings
from accel.cli.main import main
from accel.cli.serving import serve
from accel.lookup.slow_lookups import REASONS
from accel.server import Sidecar
from accel.server.guard import App
from loaders.store import CountingStore
from tests.accel.server.asking import NODE, STREAM, ask, asked, filled, post

SLOW = Settings(slow_lookup_seconds=1e-9, hedge_percent=0, parallel_loads=4)
"""Every lookup that memory does not answer is slow."""


def test_a_sidecar_records_slow_lookups_unless_it_is_told_not_to() -> None:
    assert Sidecar(CountingStore(filled())).lookups.slow_lookup_seconds == 0.5
    [shown] = [each for each in serve.params if each.name == "slow_log"]
    assert shown.get_default(Context(serve)) == "0.5s"


@asked(lookups=SLOW)
async def test_slow_lookups_are_listed_with_the_reason_and_the_trace(app: App, sidecar: Sidecar) -> None:
    assert (await ask(app, "/v1/slow")).json == {"seconds": 1e-9, "lookups": []}
    for start in (250, 750):
        await ask(app, f"/v1/objects?stream_id={STREAM}&start={start}&end={start + 1}")
    told = (await ask(app, "/v1/slow")).json
    latest = told["lookups"][0]
    assert latest["reason"] in REASONS
    assert latest["request"]["stream_id"] == STREAM
    assert set(latest["cost"]) >= {"seconds", "requests", "rounds", "image_seconds", "store_seconds", "longest_seconds"}
    assert set(latest["cost"]) >= {"hedged", "joined", "opened_again"}
    assert latest["error"] is None
    assert any(line.startswith("waited   ") for line in latest["lines"])
    assert any(line.startswith("round 1") for line in latest["lines"])
    assert len((await ask(app, "/v1/slow?limit=1")).json["lookups"]) == 1
    assert (await ask(app, "/v1/slow?limit=33")).status == 400
    counted = [
        line for line in generate_latest(sidecar.registry).decode().splitlines() if "accel_slow_lookups_t" in line
    ]
    assert len(counted) == len(REASONS) + 2
    assert sum(float(line.split()[-1]) for line in counted if line[0] != "#") == len(told["lookups"])
    shown = CliRunner().invoke(main, ["explain", "--from", "-"], input=msgspec.json.encode(told))
    assert shown.exit_code == 0
    assert shown.stdout.count(f"stream {STREAM}") == len(told["lookups"])


@asked()
async def test_hot_streams_and_nodes_are_named_and_no_metric_has_their_ids(app: App, sidecar: Sidecar) -> None:
    for start in range(0, 300, 100):
        await ask(app, f"/v1/objects?stream_id={STREAM}&start={start}&end={start + 1}")
    await post(app, "/v1/objects:batch", {"lookups": [{"stream_id": STREAM, "start": 0}]})
    told = (await ask(app, "/v1/hot")).json
    assert told["streams"]["lookups"] == [{"id": STREAM, "count": 4}]
    assert told["nodes"]["lookups"] == [{"id": NODE, "count": 4}]
    assert told["totals"]["lookups"] == 4
    gets = told["totals"]["gets"]
    assert gets > 0
    assert told["streams"]["gets"] == [{"id": STREAM, "count": gets}]
    assert told["totals"]["bytes"] == told["nodes"]["bytes"][0]["count"] > 0
    text = generate_latest(sidecar.registry).decode()
    assert "accel_hot_stream_lookups_ratio 1.0" in text
    assert "accel_hot_node_lookups_ratio 1.0" in text
    assert str(STREAM) not in text
