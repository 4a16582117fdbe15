"""What scrapers get: the form that they accept, by their own parsers, promtool's lint, and a real Prometheus."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from accel.server.guard import App
from accel.system import SYSTEM
from tests.accel.server.asking import STREAM, ask, asked, filled
from tests.accel.server.test_served import served
from tests.processes.test_owners import free_port

PROMETHEUS = shutil.which("prometheus") or ""
PROMTOOL = shutil.which("promtool") or ""
NEEDED = pytest.mark.skipif(not (PROMETHEUS and PROMTOOL), reason="Debian's package prometheus is not installed")
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    "accept", ["", "*/*", "text/plain", "application/openmetrics-text;version=1.0.0", PROMETHEUS_3]
)
def test_the_form_is_the_one_that_the_scraper_accepts(accept: str) -> None:
    @asked()
    async def scrape(app: App) -> None:
        await ask(app, f"/v1/objects?stream_id={STREAM}&start=0&end=5")
        reply = await ask(app, "/metrics", headers={"accept": accept})
        is_open = "openmetrics" in accept
        assert reply.headers["content-type"].startswith("application/openmetrics" if is_open else "text/plain")
        families = list((open_families if is_open else text_families)(reply.body.decode()))
        names = [family.name for family in families]
        assert len(names) == len(set(names)) > 40
        series = [(one.name, *sorted(one.labels.items())) for family in families for one in family.samples]
        assert len(series) == len(set(series))

    scrape()


@NEEDED
def test_promtool_finds_nothing_in_the_metrics() -> None:
    with served(filled(4)) as one:
        one.get(f"/v1/objects?stream_id={STREAM}&start=0&end=50")
        text = one.get("/metrics")[1]
    ran = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False)  # noqa: S603 - our own words
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


@NEEDED
def test_a_prometheus_scrapes_a_sidecar(tmp_path: Path) -> None:
    port = free_port()
    with served(filled(4)) as one:
        one.get(f"/v1/objects?stream_id={STREAM}&start=0&end=50")
        job = {"job_name": "accel", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{one.port}"]}]}
        config = tmp_path / "prometheus.yaml"
        config.write_text(json.dumps({"scrape_configs": [job]}))
        options = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data"]
        command = [PROMETHEUS, *options, f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
        process = subprocess.Popen(command)  # noqa: S603 - our own words

        def value(query: str) -> float | None:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                connection.request("GET", f"/api/v1/query?query={quote(query)}")
                found: list[Any] = json.loads(connection.getresponse().read())["data"]["result"]
            return float(found[0]["value"][1]) if found else None

        def is_up() -> bool:
            try:
                return value("up") == 1
            except (OSError, ValueError):  # it does not listen, or says that it is not ready
                return False

        try:
            while not is_up():
                assert process.poll() is None
                SYSTEM.sleep(0.05)
            assert value('accel_lookups_total{ending="end"}') == 1
            assert value('accel_sidecar_state{state="ready"}') == 1
            assert value("absent(accel_hint_age_seconds)") == 1
        finally:
            process.terminate()
            process.wait(60)
