"""`--image`: a file, a URL, or a source that a package offers; and the jobs that take one in place of a catalog."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from accel.errors import ImageRefused, KeyMissing, StoreUnavailable
from accel.image import MetadataImage
from accel.image_source import SOURCES_GROUP, ImageSource, StaticImages, read_image
from loaders.layout import HINTS_PREFIX
from loaders.store import open_store
from tests.accel.cli.worlds import World, run

IMAGE = b'{"streams": [], "nodes": [{"node_id": 4}], "version": 9}'


class Replies(BaseHTTPRequestHandler):
    """Serves the image at one path."""

    def do_GET(self) -> None:
        is_there = self.path == "/image.json?token=secret"
        self.send_response(200 if is_there else 404)
        self.end_headers()
        self.wfile.write(IMAGE if is_there else b"")

    def log_message(self, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Replies) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def static(text: str) -> ImageSource:
    return StaticImages(MetadataImage.from_dict(json.loads(IMAGE), namespace=text or "by-name"))


def test_a_file_may_be_named_by_a_url(tmp_path: Path) -> None:
    (tmp_path / "an image.json").write_bytes(IMAGE)
    assert (
        read_image(f"file://{tmp_path}/an%20image.json").version == read_image(str(tmp_path / "an image.json")).version
    )
    with pytest.raises(OSError, match="No such file"):
        read_image(f"file://{tmp_path}/none.json")
    with pytest.raises(ValueError, match="three slashes"):
        read_image("file://tmp/image.json")


@pytest.fixture
def _offered(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(group: str) -> list[SimpleNamespace]:
        assert group == SOURCES_GROUP
        return [SimpleNamespace(name="broker", load=lambda: static)]

    monkeypatch.setattr(metadata, "entry_points", entry_points)


def test_an_image_is_read_from_a_file_and_from_a_store(tmp_path: Path) -> None:
    (tmp_path / "image.json").write_bytes(IMAGE)
    open_store("memory://images").put("some/image.json", IMAGE)
    for place in (str(tmp_path / "image.json"), "memory://images/some/image.json"):
        assert read_image(place).version == 9


def test_an_image_is_read_by_http(server: str) -> None:
    assert read_image(f"{server}/image.json?token=secret").version == 9
    with pytest.raises(StoreUnavailable, match="404"):
        read_image(f"{server}/other.json")


@pytest.mark.usefixtures("_offered")
def test_an_image_is_asked_of_a_source_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [read_image(place).namespace for place in ("broker", "broker:", "broker:other")] == [
        "by-name",
        "by-name",
        "other",
    ]
    monkeypatch.chdir(tmp_path)
    Path("broker").write_bytes(IMAGE)
    assert read_image("broker").namespace == "DEFAULT"


@pytest.mark.usefixtures("_offered")
@pytest.mark.parametrize("place", ["nobody", "nobody:x", "no/such/file.json", ""])
def test_what_is_no_file_and_no_source_is_refused_and_the_sources_are_told(place: str) -> None:
    with pytest.raises(ValueError, match=r"does not exist: expected a file, a URL, or the name of a source \(broker\)"):
        read_image(place)


@pytest.mark.parametrize(
    ("place", "error", "text"),
    [
        ("memory://images/none.json", KeyMissing, "none.json"),
        ("memory://images/", ValueError, "expected a URL of an image, as s3://bucket/image.json, found"),
        ("memory://images", ValueError, "expected a URL of an image"),
        ("ftp://host/image.json", ValueError, "expected s3://bucket/prefix, gs://bucket/prefix, az://"),
        ("memory://images/bad.json", ImageRefused, "memory://images/bad.json: expected an image as JSON"),
        ("http://127.0.0.1:1/image.json", StoreUnavailable, "refused"),
    ],
)
def test_other_places_say_what_is_wrong(place: str, error: type[Exception], text: str) -> None:
    open_store("memory://images").put("bad.json", b"[")
    with pytest.raises(error, match=text):
        read_image(place)


def test_a_place_that_is_none_is_an_error_of_use(world: World) -> None:
    result = run("catalog", "build-hints", "--store", world.store_url, "--image", "memory://x")
    assert (result.exit_code, "Invalid value for '--image'" in result.stderr) == (2, True)


@pytest.mark.parametrize("only", [(), ("--only", "filters"), ("--only", "snapshots")])
def test_hints_of_an_image_need_no_catalog(world: World, only: tuple[str, ...]) -> None:
    before = {info.key for info in world.store.list("")}
    dry = world.run("catalog", "build-hints", *only, "--dry-run")
    assert (dry.exit_code, dry.stderr) == (0, "")
    assert {info.key for info in world.store.list("")} == before
    result = world.run("catalog", "build-hints", *only, "--output", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["report"]["opened_objects"] == len(world.listed)
    written = {info.key for info in world.store.list("")} - before
    assert written
    assert all(key.startswith(HINTS_PREFIX) for key in written)
    again = world.run("catalog", "build-hints", *only, "--output", "json")
    assert json.loads(again.stdout)["report"]["opened_objects"] == 0


def test_objects_of_an_image_are_only_planned_to_be_merged_here(world: World) -> None:
    by_force = ("--rewrite-all", "--min-age", "0s")
    dry = world.run("catalog", "compact", "--dry-run", *by_force)
    assert (dry.exit_code, dry.stderr) == (0, "")
    assert dry.stdout == world.run("adopt", "compact", "--dry-run", *by_force).stdout
    refused = world.run("catalog", "compact", *by_force)
    assert refused.exit_code == 2
    assert "'accel adopt compact --image' merges" in " ".join(refused.stderr.split())
