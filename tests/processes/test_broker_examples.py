"""The brokers of `examples/` run as they are, against a sidecar over objects in memory."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.accel.server.asking import STREAM, filled
from tests.accel.server.test_served import served

EXAMPLES = Path(__file__).parents[2] / "examples"
JAVA = shutil.which("java") if shutil.which("javac") else None
SECONDS_MAX = 120


def output_of(*command: str) -> list[str]:
    """The lines that a broker prints about [150, 420) of the stream."""
    with served(filled(6)) as sidecar:
        words = [*command, f"http://127.0.0.1:{sidecar.port}", str(STREAM), "150", "420"]
        ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)  # noqa: S603 - ours
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def spans(answer: str) -> list[tuple[int, int]]:
    return [(each["start"], each["end"]) for each in json.loads(answer)["objects"]]


def test_the_asyncio_broker_reads_streams_side_by_side() -> None:
    spec = importlib.util.spec_from_file_location("asyncio_broker", EXAMPLES / "asyncio_broker.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    reads = [(STREAM, 150, 420), (STREAM, 0, 100), (STREAM, 500, 501)]
    found = asyncio.run(module.consume(filled(6), reads))
    offsets = [[batch.base_offset for batch in batches] for batches in found]
    assert offsets == [[100, 200, 300, 400], [0], [500]]
    assert found[2][0].payload == b"records 5"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl in PATH")
def test_the_curl_broker_looks_up_again_in_batches_and_reads() -> None:
    single, again, batch, records = output_of("sh", str(EXAMPLES / "curl_broker.sh"))
    assert spans(single) == [(100, 200), (200, 300), (300, 400), (400, 500)]
    assert again == "again: 304"
    [outcome] = json.loads(batch)["outcomes"]
    assert spans(json.dumps(outcome["answer"])) == spans(single)
    assert records == f"records: {4 * (33 + len(b'records 1'))} bytes"


@pytest.mark.skipif(JAVA is None, reason="no JDK: neither java nor javac may be missing in PATH")
def test_the_java_broker_compiles_and_reads() -> None:
    assert JAVA is not None
    answer, *batches = output_of(JAVA, str(EXAMPLES / "Broker.java"))
    assert spans(answer) == [(100, 200), (200, 300), (300, 400), (400, 500)]
    assert batches == [f"[{start}, {start + 100}) 9 bytes" for start in (100, 200, 300, 400)]
