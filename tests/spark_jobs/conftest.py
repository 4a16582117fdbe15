"""Fixtures of the tests on Spark: on the kind of session that ACCEL_TEST_SPARK names (`tests.spark_jobs.clusters`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loaders.store import StoreSettings
from spark_jobs.session import session
from spark_jobs.source import register
from spark_jobs.tasks import StoreSpec
from tests.servers.fixtures import Endpoint, new_bucket
from tests.spark_jobs.clusters import CORES, KIND, SHORT_LIVED, connect_server, executors_of_their_own

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Spark's log of events."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(moto_endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory, event_log: Path) -> Iterator[SparkSession]:
    """A session of two cores. Its processes keep the environment of its start: that of the embedded server."""
    variables = {
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
        local = tmp_path_factory.mktemp("spark")
        config = {
            "spark.local.dir": str(local),
            "spark.sql.warehouse.dir": str(local),
            "spark.driver.defaultJavaOptions": SHORT_LIVED,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": event_log.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
        with ExitStack() as stack:
            master = f"local[{CORES}]"
            if KIND == "local-cluster":
                master = "local-cluster[2,1,1024]"
                config |= executors_of_their_own(environment, local)
            if KIND == "connect":
                master, config = stack.enter_context(connect_server(local, config)), {}
            started = stack.enter_context(session(master, config=config))
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
