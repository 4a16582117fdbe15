"""The path of a newcomer, step by step, with the time that each step takes: `python -m tests.docs.newcomer`.

Each step is what a page says, typed into a shell: install (only with ``--install``: an environment of its own, which
downloads packages), check a server of S3, find objects by an image of one's own, wrap a broker's reads, ask the sidecar
with curl, compact, raise an alert. The server is the embedded one; an endpoint can be named instead. The last line says
how long it took, and a step that fails ends the program with its output.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import boto3
import click

from accel.cli.demo import ISSUE_OBJECTS
from accel.cli.embedded_s3 import embedded_s3
from loaders.layout import ObjectLayout
from loaders.store import StoreSettings, open_store
from tests.builders import write_set_object
from tests.counting import ROOT
from tests.docs.pages import blocks, page_named

STREAM_ID, NODE_ID, PORT = 420_000, 4, 8481
SIDECAR = f"http://127.0.0.1:{PORT}"
LINES_SHOWN = 3

PROMETHEUS = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs: [{job_name: accel, static_configs: [{targets: ['127.0.0.1:%d']}]}]
"""

STEPS = {
    "check the server": "accel doctor s3://shop",
    "the first lookup, with an image of one's own": (
        f"accel get-objects s3://shop --image image.json --stream {STREAM_ID} --start 100 --end 200"
    ),
    "wrap a broker": "python wrap.py",
    "a sidecar, and curl": (
        f"(accel serve s3://shop --image image.json --port {PORT} >sidecar.log 2>&1 & echo $! >sidecar.pid); "
        f"curl -sS --retry 60 --retry-connrefused --retry-delay 1 {SIDECAR}/readyz; "
        f"sh {ROOT}/examples/curl_broker.sh {SIDECAR} {STREAM_ID} 1000 1080 && "
        f"curl -sS -o metrics.txt {SIDECAR}/metrics"
    ),
    "the first compaction": (
        "export ACCEL_STORE=s3://own; accel catalog init --namespace tutorial && python fill.py && "
        "accel catalog compact --max-objects-per-node 50 --min-age 0s"
    ),
    "the first alert": (
        f"promtool check rules {ROOT}/deploy/prometheus/alerts.yaml && promtool check metrics < metrics.txt && "
        "(prometheus --config.file prometheus.yaml --storage.tsdb.path data --web.listen-address 127.0.0.1:9491 "
        ">prometheus.log 2>&1 & echo $! >prometheus.pid); kill $(cat sidecar.pid); "
        "for _ in $(seq 60); do curl -sS http://127.0.0.1:9491/api/v1/alerts 2>/dev/null | "
        'grep -o \'"alertname":"[A-Za-z]*"\' && break; sleep 1; done | grep . && kill $(cat prometheus.pid)'
    ),
}


def prepare(folder: Path, endpoint: str) -> None:
    """The buckets, the objects that a broker wrote, and the files that the newcomer writes."""
    client = boto3.client("s3", endpoint_url=endpoint)
    for bucket in ("shop", "own"):
        client.create_bucket(Bucket=bucket)
    store, layout, listed = open_store("s3://shop", StoreSettings(endpoint_url=endpoint)), ObjectLayout(), []
    for object_id, start, end in ISSUE_OBJECTS:
        body = write_set_object([(STREAM_ID, start, end)])
        store.put(layout.object_key(object_id), body)
        listed.append({"object_id": object_id, "order_id": object_id, "size": len(body)})
    ranges = [{"range_index": 0, "start": 0, "end": 2000, "node_id": NODE_ID}]
    image = {
        "streams": [{"stream_id": STREAM_ID, "start_offset": 0, "ranges": ranges}],
        "nodes": [{"node_id": NODE_ID, "stream_set_objects": listed}],
    }
    (folder / "image.json").write_text(json.dumps(image))
    (folder / "wrap.py").write_text("\n".join(block.text for block in blocks(page_named("brokers"), "python")))
    (folder / "fill.py").write_text(blocks(page_named("tutorial"), "python")[0].text)
    (folder / "prometheus.yaml").write_text(PROMETHEUS % (ROOT / "deploy/prometheus/alerts.yaml", PORT))


def walk(step: str, command: str, folder: Path, variables: dict[str, str]) -> float:
    """Carry out a step, and print its first lines; returns the seconds that it took."""
    started = perf_counter()
    ended = subprocess.run(  # noqa: S603 - the commands above
        ["/bin/bash", "-c", command], check=False, cwd=folder, env=variables, capture_output=True, text=True
    )
    seconds = perf_counter() - started
    click.echo(f"== {step}: {seconds:.1f} s\n$ {command.replace(str(ROOT), '.')}")
    lines = (ended.stdout + ended.stderr).strip().splitlines()
    few = [*lines[: LINES_SHOWN - 1], "...", *lines[LINES_SHOWN - 1 :][-1:]]
    shown = lines if ended.returncode or len(lines) <= LINES_SHOWN else few
    click.echo("\n".join([*shown, ""]))
    if ended.returncode:
        sys.exit(f"the step ended with {ended.returncode}")
    return seconds


def main(words: list[str]) -> None:
    """Walk the path."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        environment = folder / "environment" / "bin" if "--install" in words else Path(sys.executable).parent
        variables = {
            **os.environ,
            "PATH": f"{environment}:{os.environ['PATH']}",
            "AWS_ACCESS_KEY_ID": "accel",
            "AWS_SECRET_ACCESS_KEY": "accel-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "ACCEL_CONFIG": os.devnull,
        }
        os.environ.update({name: text for name, text in variables.items() if name.startswith("AWS_")})
        total = 0.0
        if "--install" in words:
            install = (
                f"python3 -m venv environment && environment/bin/pip install -q {shlex.quote(f'{ROOT}[demo,server]')}"
            )
            total += walk("install", install, folder, variables)
        endpoint = next((word for word in words if "://" in word), "") or stack.enter_context(embedded_s3())
        variables["AWS_ENDPOINT_URL_S3"] = endpoint
        prepare(folder, endpoint)
        for step, command in STEPS.items():
            total += walk(step, command, folder, variables)
        click.echo(f"the whole path: {total:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
