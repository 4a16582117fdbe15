"""Fixtures of the tests on Spark: on the kind of session that ACCEL_TEST_SPARK names (`tests.spark_jobs.clusters`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loaders.store import StoreSettings
from spark_jobs.session import session
from spark_jobs.source import register
from spark_jobs.tasks import StoreSpec
from tests.counting import ROOT
from tests.servers.fixtures import Endpoint, new_bucket
from tests.spark_jobs.clusters import (
    CORES,
    HANG_SECONDS,
    KIND,
    OF_EACH_JVM,
    SERVER_LOG,
    SERVER_URL,
    connect_server,
    executors_of_their_own,
    logged,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start Java several times are given the time of a machine at work."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(2 * HANG_SECONDS))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server of Spark Connect; the variables by which another process of tests uses it, too."""
    if SERVER_URL in os.environ:
        yield {name: os.environ[name] for name in (SERVER_URL, SERVER_LOG)}
        return
    folder, log = tmp_path_factory.mktemp("connect"), tmp_path_factory.mktemp("events-of-connect")
    places = dict.fromkeys(("spark.local.dir", "spark.sql.warehouse.dir"), str(folder))
    with connect_server(folder, {**logged(log), **places}) as url:
        yield {SERVER_URL: url, SERVER_LOG: str(log)}


@pytest.fixture(scope="session")
def event_log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Spark's log of events."""
    if KIND == "connect":
        return Path(request.getfixturevalue("server")[SERVER_LOG])
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, moto_endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session of two cores. Its processes keep the environment of its start: that of the embedded server."""
    variables = {
        **OF_EACH_JVM,
        "AWS_ACCESS_KEY_ID": moto_endpoint.access_key,
        "AWS_SECRET_ACCESS_KEY": moto_endpoint.secret_key,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
    }
    with pytest.MonkeyPatch.context() as environment:
        for name, value in variables.items():
            environment.setenv(name, value)
        environment.delenv("AWS_PROFILE", raising=False)
        log, local = request.getfixturevalue("event_log"), tmp_path_factory.mktemp("spark")
        master, config = f"local[{CORES}]", logged(log)
        config |= dict.fromkeys(("spark.local.dir", "spark.sql.warehouse.dir"), str(local))
        if KIND == "local":
            environment.setenv("PYTHONPATH", str(ROOT))
            config["spark.python.daemon.module"] = "tests.spark_jobs.daemon"
        if KIND == "local-cluster":
            master = "local-cluster[2,1,1024]"
            config |= executors_of_their_own(environment, local)
        if KIND == "connect":
            master, config = request.getfixturevalue("server")[SERVER_URL], {}
        with session(master, config=config) as started:
            register(started)
            yield started


@pytest.fixture
def bucket(tmp_path: Path) -> StoreSpec:
    """An empty folder that tasks can reach: it answers in a tenth of the time of the embedded server."""
    return StoreSpec(f"file://{tmp_path}/store")


@pytest.fixture
def bucket_on_s3(moto_endpoint: Endpoint, aws_environment: pytest.MonkeyPatch) -> StoreSpec:
    """An empty bucket that tasks can reach."""
    aws_environment.setenv("AWS_ACCESS_KEY_ID", moto_endpoint.access_key)
    aws_environment.setenv("AWS_SECRET_ACCESS_KEY", moto_endpoint.secret_key)
    name = new_bucket(moto_endpoint.client)
    return StoreSpec(f"s3://{name}/some/where", StoreSettings(endpoint_url=moto_endpoint.url, region="us-east-1"))
