"""A command works against an S3 endpoint, through both clients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loaders.store import MemoryStore, StoreSettings, open_store
from tests.accel.cli.worlds import World, make_world, run
from tests.servers.fixtures import Endpoint, new_bucket

QUESTION = ("--stream", "420000", "--start", "1000", "--end", "1600")


@pytest.fixture
def bucket(moto_endpoint: Endpoint, aws_environment: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """The node below a prefix of a bucket; the endpoint is in the environment."""
    url = f"s3://{new_bucket(moto_endpoint.client)}/some/prefix"
    aws_environment.setenv("ACCEL_ENDPOINT_URL", moto_endpoint.url)
    return make_world(tmp_path, open_store(url, StoreSettings(endpoint_url=moto_endpoint.url)), url)


@pytest.mark.parametrize("client", ["boto3", "obstore"])
def test_objects_are_found(bucket: World, client: str) -> None:
    found = json.loads(bucket.run("get-objects", *QUESTION, "--client", client, "--output", "json").stdout)
    assert [each["object_id"] for each in found["objects"]] == [18, 20, 22]


@pytest.mark.parametrize(
    ("style", "path_style"), [((), None), (("auto",), None), (("path",), True), (("virtual",), False)]
)
def test_the_style_of_addressing_and_the_authority_are_settings(
    style: tuple[str, ...], path_style: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[StoreSettings] = []

    def open_nothing(_: str, settings: StoreSettings) -> MemoryStore:
        opened.append(settings)
        return MemoryStore()

    monkeypatch.setattr("accel.cli.options.open_store", open_nothing)
    given = ("--addressing-style", *style) if style else ()
    assert run("catalog", "status", "s3://bucket", "--ca-bundle", "own.pem", *given).exit_code
    monkeypatch.setenv("ACCEL_ADDRESSING_STYLE", style[0] if style else "")
    assert run("catalog", "status", "s3://bucket").exit_code
    assert [each.path_style for each in opened] == [path_style, path_style]
    assert [each.ca_bundle for each in opened] == ["own.pem", None]


def test_a_wrong_bucket_and_a_wrong_profile_are_told(bucket: World) -> None:
    image = ("--image", str(bucket.image_path))
    wrong = run("get-objects", *QUESTION, *image, "--store", "s3://no-such-bucket", "--output", "json")
    assert (wrong.exit_code, json.loads(wrong.stderr)["type"]) == (1, "BucketMissing")
    profile = bucket.run("get-objects", *QUESTION, "--profile", "nobody")
    assert profile.exit_code == 1
    assert "The config profile (nobody) could not be found" in profile.stderr
