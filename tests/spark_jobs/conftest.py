"""Fixtures of the tests on Spark."""

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
from tests.servers.fixtures import Endpoint, new_bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What a JVM of a few minutes on two cores is told: compile quickly rather than well, and collect in one thread."""


@pytest.fixture(scope="session")
def spark(moto_endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
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
        local = str(tmp_path_factory.mktemp("spark"))
        config = {
            "spark.local.dir": local,
            "spark.sql.warehouse.dir": local,
            "spark.driver.defaultJavaOptions": SHORT_LIVED,
        }
        with session(f"local[{CORES}]", config=config) as started:
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
