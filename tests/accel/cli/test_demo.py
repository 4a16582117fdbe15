"""The demo runs from end to end, counts truly, and notices any answer that is not the plain one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from accel.cli import demo
from accel.cli.demo import POLICIES, STREAM_ID, Contents, plain_walk
from accel.lookup.answer import Request
from tests.accel.cli.worlds import run

EXAMPLE = [sys.executable, "-m", "accel.cli", "demo", "--serve", "--output", "json"]


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated latency is no test's business but its being there."""
    monkeypatch.setattr(demo, "DRAWS", 1)


def test_the_demo_as_json(tmp_path: Path) -> None:
    result = run("demo", "--store", f"file://{tmp_path}", "--output", "json", "--quiet")
    found = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert list(found) == [
        *("seed", "simulated", "node", "image", "rows", "answers_checked", "same_answers", "differences")
    ]
    assert found["same_answers"] is True
    assert found["answers_checked"] == 2 * 4 * 4  # cold and warm, policies, reads
    assert {row["policy"] for row in found["rows"]} == set(POLICIES)
    assert all(row["warm_gets"] == 0 for row in found["rows"])
    assert all(row["simulated_latency_seconds"] > 0 for row in found["rows"])
    cost = found["image"]
    # Cold: the format record, the directory, one list, four stream shards. Again: all but the format record.
    assert (cost["cold_requests"], cost["unchanged_requests"], cost["unchanged_bytes"]) == (7, 6, 0)
    assert 1000 < cost["cold_bytes"] < 20_000
    row = found["rows"][0]
    assert list(row) == [*("policy", "read", "cold_gets", "rounds", "bytes", "simulated_latency_seconds", "warm_gets")]


def test_the_demo_as_text_tells_each_stage_and_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves the environment as it was, writes nothing into the store of all commands, and keeps to 80 columns."""
    monkeypatch.setenv("AWS_PROFILE", "a-profile-that-nobody-has")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    (tmp_path / "accel.toml").write_text(f'store = "file://{tmp_path}/real"\n')
    result = run("--config", str(tmp_path / "accel.toml"), "demo")
    assert result.exit_code == 0, result.stderr
    assert "starting an S3 server in this process" in result.stderr
    lines = result.stdout.splitlines()
    assert "21 objects on the embedded S3" in lines[1]
    assert "Every policy returned the same answer, cold and warm." in lines
    assert "32 answers were compared with a scan of all objects." in lines
    assert any(line.startswith("GETs and bytes are counted; warm: GETs of the same read again.") for line in lines)
    assert lines[2].startswith("image from the catalog: 7 requests, ")
    assert lines[2].endswith("; again, unchanged: 6 requests, 0 B")
    assert lines[3].split() == ["read", "policy", "GETs", "rounds", "bytes", "latency", "warm"]
    assert [line for line in lines if len(line.rstrip()) > 80] == []
    assert not (tmp_path / "real").exists()
    assert os.environ["AWS_PROFILE"] == "a-profile-that-nobody-has"
    assert "NO_PROXY" not in os.environ
    assert "AWS_ACCESS_KEY_ID" not in os.environ


def test_what_is_kept_in_a_folder_can_be_asked_again(tmp_path: Path) -> None:
    results = [run("demo", "--store", f"file://{tmp_path}/demo/") for _ in range(2)]
    for result in results:
        assert result.exit_code == 0, result.stderr
        assert f"21 objects in file://{tmp_path}/demo" in result.stdout
    told = next(line for line in results[-1].stderr.splitlines() if line.startswith("kept: accel "))
    asked = run(*told.removeprefix("kept: accel ").split(), "--output", "json")
    assert asked.exit_code == 0, asked.stderr
    assert len(list((tmp_path / "demo").iterdir())) == 2
    assert "expected s3://" in run("demo", "--store", "nowhere").stderr


def test_a_different_answer_is_told_and_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(contents: Iterable[tuple[int, Contents]], request: Request) -> list[tuple[int, int, int]]:
        return plain_walk(contents, request)[1:]

    monkeypatch.setattr(demo, "plain_walk", wrong)
    result = run("demo", "--store", f"file://{tmp_path}")
    assert result.exit_code == 1
    assert "DIFFERENT  load-all, cold, stream 420000 [100, 200): expected [(2, 105, 128)" in result.stdout
    assert "32 of 32 answers differ from a scan" in result.stdout


def test_a_missing_server_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moto.moto_server.werkzeug_app", None)
    result = run("demo")
    assert result.exit_code == 1
    assert "pip install 'accel-streams[demo]'" in result.stderr


def test_the_example_bucket_needs_no_checkout_and_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "ACCEL_CONFIG": os.devnull}
    with subprocess.Popen(EXAMPLE, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as serving:  # noqa: S603 - our own
        assert serving.stdout is not None
        try:
            lines = [serving.stdout.readline()]
            while lines[-1] not in {"}\n", ""}:
                lines.append(serving.stdout.readline())
            variables = json.loads("".join(lines))
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            asked = ("get-objects", "--stream", str(STREAM_ID), "--start", "1000", "--end", "1600", "--output", "json")
            found = run(*asked, environment=variables)
            assert [each["start"] for each in json.loads(found.stdout)["objects"]] == [974, 1017, 1056]
            events = run("stream", "read", "--scope", "shop", "--stream", "orders", environment=variables)
            assert sum("order " in line for line in events.stdout.splitlines()) == 100
        finally:
            serving.send_signal(signal.SIGTERM)
    assert serving.returncode == 0


def test_what_is_served_is_in_no_store_of_ones_own() -> None:
    result = run("demo", "--serve", "--store", "file:///tmp")
    assert (result.exit_code, "Expected --store or --serve" in result.stderr) == (2, True)
