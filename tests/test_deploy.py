"""What `deploy/` holds fits this release: metrics and labels exist, commands parse, policies allow what a role does."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import click
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from accel import ObjectCatalog, connect
from accel.catalog.job_runs import GC, recorded
from accel.cli.main import main
from accel.server import SidecarSettings
from accel.system import SYSTEM
from loaders.store import MemoryStore
from loaders.store import open as open_module
from loaders.store.base import DeleteFailures
from loaders.store.decorated import GETS, WRITES, DecoratedStore, StoreCall
from tests.accel.cli.test_catalog_maintenance import filled as fill_shop
from tests.accel.cli.worlds import run
from tests.accel.server.asking import STREAM, ask, filled, serving
from tests.docs.pages import anchors, page_named
from tests.spark_jobs.worlds import NAMESPACE, fill, make_catalog

Answer = TypeVar("Answer")

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
NODE = 4
ROLES = ("reader", "broker", "compactor", "collector")
OWN_LABELS = {"instance", "job", "le"}


def loaded(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text())


def manifests() -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "accel.yaml").read_text()))


def alerts() -> list[dict[str, Any]]:
    return [rule for group in loaded("prometheus/alerts.yaml")["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    """All PromQL, with the variables of Grafana filled in."""
    dashboard = json.loads((DEPLOY / "grafana" / "accel.json").read_text())
    drawn = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(drawn) > 15
    filled_in = [each.replace("$__rate_interval", "5m").replace("$instance", ".*") for each in drawn]
    return [*filled_in, *(rule["expr"] for rule in alerts())]


@cache
def told() -> dict[str, set[str]]:
    """The names that a sidecar tells, each with the values of its labels as name=value."""
    store = filled(3)
    with ObjectCatalog.open(store) as catalog, recorded(catalog.parts, GC):
        pass

    async def work() -> bytes:
        async with serving(store, timer=lambda: 0.0) as (app, _):
            await ask(app, f"/v1/objects?stream_id={STREAM}&start=0&end=300")
            return (await ask(app, "/metrics")).body

    names: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(asyncio.run(work()).decode()):
        names.setdefault(family.name + "_total" * (family.type == "counter"), set())
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(f"{key}={value}" for key, value in sample.labels.items())
    return names


def selectors(expression: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    for name, labels in re.findall(r"\b(accel_[a-z_]+)(?:\{([^}]*)\})?", expression):
        yield name, re.findall(r"(\w+)(=~|!=|=)\"([^\"]*)\"", labels)


def test_every_expression_is_promql_over_metrics_and_labels_that_exist() -> None:
    for expression in expressions():
        promql_parser.parse(expression)
        for name, labels in selectors(expression):
            assert name in told(), expression
            known = {each.partition("=")[0] for each in told()[name]} | OWN_LABELS
            assert {label for label, _, _ in labels} <= known, expression


def test_states_endings_and_reasons_that_expressions_select_are_told() -> None:
    bounded = {"state", "ending", "by"}
    asked = {
        (name, f"{label}={value}")
        for expression in expressions()
        for name, labels in selectors(expression)
        for label, _, values in labels
        if label in bounded
        for value in values.split("|")
    }
    assert len(asked) >= 4
    assert [each for each in asked if each[1] not in told()[each[0]]] == []


def test_labels_that_expressions_sum_by_exist() -> None:
    for expression in expressions():
        names = [name for name, _ in selectors(expression)]
        known = {each.partition("=")[0] for name in names for each in told()[name]} | OWN_LABELS
        for group in re.findall(r"\bby \(([^)]*)\)", expression):
            assert {each.strip() for each in group.split(",")} - {"outcome", "status", "operation"} <= known, expression


def test_alerts_lead_to_sections_of_the_docs() -> None:
    assert len({rule["alert"] for rule in alerts()}) == len(alerts())
    for rule in alerts():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor in anchors(ROOT / page), rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}


PROMTOOL = shutil.which("promtool") or ""
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed: Debian's package prometheus")

SITUATIONS = {
    "AccelLookupsSlow": {
        'accel_http_request_duration_seconds_bucket{instance="a",operation="objects",le="1.0"}': "0+60x60",
        'accel_http_request_duration_seconds_bucket{instance="a",operation="objects",le="2.5"}': "0+63x60",
        'accel_http_request_duration_seconds_bucket{instance="a",operation="objects",le="+Inf"}': "0+63x60",
    },
    "AccelJobLate": {'accel_job_success_age_seconds{instance="a",kind="gc"}': "172000+60x60"},
    "AccelCompactionBehind": {'accel_compaction_waiting_objects{instance="a"}': "3+0x240"},
    "AccelStoreThrottles": {
        'accel_store_throttled_answers_total{instance="a",operation="get"}': "0+2x60",
        'accel_store_requests_total{instance="a",operation="get",outcome="ok"}': "0+100x60",
    },
}
"""Of each alert series, a sample a minute for an hour, or as `FIRES_MINUTES` says, at the end of which it fires."""

FIRES_MINUTES = {"AccelCompactionBehind": 240}


@needs_promtool
def test_the_rules_are_those_of_prometheus_and_each_question_that_wakes_somebody_has_an_alert(tmp_path: Path) -> None:
    assert {rule["alert"] for rule in alerts() if "questions.md#" in rule["annotations"]["runbook"]} >= set(SITUATIONS)
    rules = DEPLOY / "prometheus" / "alerts.yaml"
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                    "eval_time": f"{FIRES_MINUTES.get(alert, 60)}m",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
        for alert, series in SITUATIONS.items()
    ]
    made = tmp_path / "tests.yaml"
    made.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    for words in (["check", "rules", "--lint-fatal", str(rules)], ["test", "rules", str(made)]):
        ran = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, check=False)  # noqa: S603 - our own words
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_operations_page_has_each_alert_with_its_severity() -> None:
    groups = re.findall(r"((?:`Accel\w+`,? )+)\((page|ticket)\)", page_named("operations").read_text())
    told = {(name, severity) for names, severity in groups for name in re.findall(r"`(\w+)`", names)}
    assert told == {(rule["alert"], rule["labels"]["severity"]) for rule in alerts()}


def containers() -> Iterator[dict[str, Any]]:
    for each in manifests():
        if each["kind"] in {"Deployment", "CronJob"}:
            spec = each["spec"]["jobTemplate"]["spec"] if each["kind"] == "CronJob" else each["spec"]
            pod = spec["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["enableServiceLinks"] is False  # a Service "accel-serve" would set ACCEL_SERVE_PORT to a URL
            yield from pod["containers"]


def commands() -> list[list[str]]:
    """The arguments of all containers that run `accel`."""
    composed = [each["command"] for each in loaded("compose/compose.yaml")["services"].values() if "command" in each]
    return [*(each["args"] for each in containers()), *composed]


def test_containers_run_commands_that_exist() -> None:
    assert len(commands()) == 7
    for words in commands():
        command: click.Command = main
        context, rest = click.Context(main), list(words)
        while isinstance(command, click.Group):
            found = command.get_command(context, rest.pop(0))
            assert found is not None, words
            command = found
        parser = command.make_parser(click.Context(command))
        _, left, _ = parser.parse_args(rest)
        assert left == [], words


def test_sidecars_in_containers_need_a_token_and_probes_ask_open_paths() -> None:
    for words in commands():
        if words[0] == "serve":
            assert {"--host", "--token-file"} <= set(words)
            assert "--open" not in words
    sidecar = next(each for each in containers() if each["name"] == "sidecar")
    probes = {sidecar[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    assert probes == {"/healthz", "/readyz"}
    assert sidecar["ports"][0]["containerPort"] == SidecarSettings().port


def test_what_manifests_and_compose_name_is_there() -> None:
    kinds = [each["kind"] for each in manifests()]
    accounts = {each["metadata"]["name"] for each in manifests() if each["kind"] == "ServiceAccount"}
    assert accounts == {f"accel-{role}" for role in ROLES if role != "broker"}
    assert kinds.count("CronJob") == 4
    services = loaded("compose/compose.yaml")["services"]
    for each in services.values():
        assert set(each.get("depends_on", {})) <= services.keys()
        for volume in each.get("volumes", []):
            assert (DEPLOY / "compose" / volume.partition(":")[0]).is_file(), volume
    target = loaded("prometheus/prometheus.yaml")["scrape_configs"][0]["static_configs"][0]["targets"][0]
    assert target == f"sidecar:{SidecarSettings().port}"
    assert target.partition(":")[0] in services


def test_the_dockerfile_copies_what_the_build_needs_and_runs_as_nobody_special() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert [each for each in copied if not (ROOT / each).exists()] == []
    assert {"pyproject.toml", "README.md", "LICENSE", "accel", "bloom", "range_index", "loaders", "spark_jobs"} <= set(
        copied
    )
    assert "USER 10001" in lines


class Request(NamedTuple):
    action: str
    key: str


ACTIONS = {
    **dict.fromkeys(GETS, "s3:GetObject"),
    **dict.fromkeys(WRITES, "s3:PutObject"),
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
    "abort": "s3:AbortMultipartUpload",
}
"""Operation of a store -> the right that it needs."""


class RecordedStore(DecoratedStore):
    """Writes down which right each request needs. Threads: any; a list takes appends of all."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(clock=lambda: SYSTEM.clock() - 864_000))  # nothing in it is young
        self.requests: list[Request] = []

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation in ACTIONS:
            self.requests.append(Request(ACTIONS[call.operation], "" if call.operation == "list" else call.key))
        return send()

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """Each key is one request here."""
        for key in keys:
            self.delete(key)
        return []


def allows(role: str, request: Request, namespace: str) -> bool:
    policy = json.loads((DEPLOY / "iam" / f"{role}.json").read_text().replace("NAMESPACE", namespace))
    assert policy["Version"] == "2012-10-17"
    arn = f"arn:aws:s3:::BUCKET/PREFIX/{request.key}" if request.key else "arn:aws:s3:::BUCKET"
    return any(
        request.action in statement["Action"] and any(fnmatchcase(arn, each) for each in statement["Resource"])
        for statement in policy["Statement"]
    )


def needed_by(store: RecordedStore, *words: str) -> set[Request]:
    """What a command asks a store for."""
    name = uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(open_module._memory_stores, name, store)
        store.requests.clear()
        result = run(*words, "--store", f"memory://{name}")
    assert result.exit_code == 0, result.output
    return set(store.requests)


def refused(role: str, requests: set[Request]) -> list[Request]:
    return sorted(each for each in requests if not allows(role, each, NAMESPACE))


@pytest.fixture
def catalog_of_six() -> RecordedStore:
    store = RecordedStore()
    make_catalog(store)
    fill(store, NODE, [[(1, at, at + 1), (100 + at, 0, 9)] for at in range(6)])
    return store


def test_roles_may_do_what_their_commands_and_programs_ask_for(catalog_of_six: RecordedStore) -> None:
    store = catalog_of_six
    merged = needed_by(store, "catalog", "compact", "--rewrite-all", "--target-objects", "1", "--min-age", "0s")
    assert refused("compactor", merged) == []
    assert any(each.action == "s3:PutObject" and NAMESPACE in each.key for each in merged)
    assert refused("compactor", needed_by(store, "catalog", "build-hints")) == []
    assert refused("reader", needed_by(store, "catalog", "verify")) == []


def test_a_collector_may_delete_what_it_collects() -> None:
    shop = RecordedStore()
    fill_shop(shop)
    collected = needed_by(shop, "catalog", "gc", "--yes")
    assert [each for each in collected if not allows("collector", each, "shop")] == []
    assert any(each.action == "s3:DeleteObject" and "/shop/" in each.key for each in collected)


def test_a_broker_may_read_write_and_scale_its_streams() -> None:
    store = RecordedStore()
    with connect(store, create=True) as connection:
        namespace = connection.catalog.format.namespace
        store.requests.clear()
        connection.create_scope("shop")
        connection.create_stream("shop", "orders")
        with connection.writer("shop", "orders") as writer:
            for number in range(50):
                writer.write(b"order %d" % number, key=str(number))
    wanted = set(store.requests)
    assert [each for each in sorted(wanted) if not allows("broker", each, namespace)] == []
    assert [each for each in sorted(wanted) if not allows("reader", each, namespace)] != []
