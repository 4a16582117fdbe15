"""A service of writers, readers and a scaler, some of which are killed: `benchmarks.service` runs and judges it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.service import (
    Bucket,
    Found,
    Giving,
    Plan,
    Service,
    Written,
    givings,
    judge_group,
    judge_stream,
)
from loaders.store import S3Settings
from tests.servers.fixtures import Endpoint, drop_bucket, new_bucket
from tests.servers.stores import SERVERS

SMALL = Plan(events=2_100, segments=4, kills=3, scales=1, open_events=200, commit_events=200, lease_seconds=2.0)
SIX = Plan(events=6, writers=1, keys=2)


@pytest.mark.parametrize("server", SERVERS)
def test_no_event_of_a_service_is_lost_doubled_or_reordered_whoever_is_killed(
    server: str, request: pytest.FixtureRequest, aws_environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    endpoint: Endpoint = request.getfixturevalue(f"{server}_endpoint")
    aws_environment.setenv("AWS_ACCESS_KEY_ID", endpoint.access_key)
    aws_environment.setenv("AWS_SECRET_ACCESS_KEY", endpoint.secret_key)
    bucket = new_bucket(endpoint.client)
    settings = S3Settings(endpoint_url=endpoint.url, etag_quotes=endpoint.etag_quotes)
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    report = Service(SMALL, Bucket(f"s3://{bucket}", settings, keys, str(tmp_path))).run()
    assert report.kills == {"writer": 1, "reader": 1, "scaler": 1}
    assert report.epochs >= SMALL.scales
    assert report.found.is_right, report.found
    if endpoint.is_lasting:
        drop_bucket(endpoint.client, bucket)


# Those who judge


def written(*numbers: int) -> list[Written]:
    return [Written(0, number, number) for number in numbers]


STREAMS = {
    "all": (range(6), Found()),
    "another order of keys": ((0, 2, 1, 4, 3, 5), Found()),
    "one is missing": ((0, 1, 2, 4, 5), Found(lost=1)),
    "one is there twice": ((0, 1, 2, 3, 4, 2, 5), Found(doubled=1)),
    "two of one key are swapped": ((0, 3, 1, 2, 4, 5), Found(reordered=1)),
}


@pytest.mark.parametrize("name", STREAMS)
def test_what_is_wrong_in_a_stream_is_found(name: str) -> None:
    numbers, found = STREAMS[name]
    assert judge_stream(SIX, written(*numbers)) == found


LOGS = {
    "one reader": (["g 1 0:0:0 0:1:1 0:2:2", "b", "c 2", "g 3 0:3:3 0:4:4 0:5:5", "b", "c 4"], [], Found()),
    "killed within a commit": (["g 1 0:0:0 0:1:1 0:2:2", "b"], ["g 3 0:3:3 0:4:4 0:5:5", "b", "c 4"], Found()),
    "killed before its commit": (
        ["g 1 0:0:0 0:1:1 0:2:2"],
        ["g 3 0:0:0 0:1:1 0:2:2 0:3:3 0:4:4 0:5:5", "b", "c 4"],
        Found(given_again=3),
    ),
    "silent for its lease": (
        ["g 1 0:0:0 0:1:1 0:2:2", "b", "x"],
        ["g 3 0:0:0 0:1:1 0:2:2 0:3:3 0:4:4 0:5:5", "b", "c 4"],
        Found(given_again=3),
    ),
    "given after a commit": (
        ["g 1 0:0:0 0:1:1 0:2:2", "b", "c 2"],
        ["g 3 0:2:2 0:3:3 0:4:4 0:5:5", "b", "c 4"],
        Found(given_again=1, committed_again=1),
    ),
    "committed by two": (
        ["g 1 0:0:0 0:1:1 0:2:2", "b", "c 5"],
        ["g 3 0:2:2 0:3:3 0:4:4 0:5:5", "b", "c 4"],
        Found(given_again=1, committed_again=1),
    ),
    "never given": (["g 1 0:0:0 0:1:1 0:2:2 0:3:3 0:4:4", "b", "c 2"], [], Found(never_given=1, not_committed=1)),
    "not committed": (["g 1 0:0:0 0:1:1 0:2:2 0:3:3 0:4:4 0:5:5"], [], Found(not_committed=6)),
    "given early": (
        ["g 2 0:0:0 0:1:1 0:2:2"],
        ["g 1 0:3:3 0:4:4 0:5:5", "b", "c 3"],
        Found(not_committed=3, given_early=2),
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_what_is_wrong_in_what_a_group_was_given_is_found(name: str) -> None:
    *logs, found = LOGS[name]
    given: list[Giving] = []
    for lines in logs:
        given += givings([*(f"{line}\n" for line in lines), "g 9 0:"])  # killed while it noted something
    judged = Found()
    judge_group(SIX, written(*range(6)), given, judged)
    assert judged == found
