"""How to run commands over a store; and a small node for them to work on: the example of AutoMQ issue 2731."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from click.testing import CliRunner, Result

from accel.cli.demo import ISSUE_OBJECTS
from accel.cli.main import main
from loaders.layout import ObjectLayout
from loaders.store import ObjectStore, open_store
from tests.builders import write_set_object

STREAM_ID = 420_000
OTHER_STREAM_ID = 7
LAYOUT = ObjectLayout(namespace="cluster")
PRODUCTION = Path(__file__).parents[2] / "data" / "stream_set_objects"

NO_ENVIRONMENT: dict[str, str | None] = {
    **dict.fromkeys(("ACCEL_STORE", "ACCEL_IMAGE", "ACCEL_OUTPUT", "NO_COLOR", "FORCE_COLOR")),
    "ACCEL_CONFIG": os.devnull,
}


@dataclass
class World:
    """A node in a store of its own, and its image in a file."""

    store: ObjectStore
    store_url: str
    image_path: Path
    metadata: dict[str, Any] = field(default_factory=dict)

    def run(self, *args: str, environment: Mapping[str, str] | None = None) -> Result:
        """A command with the store and the image named by flags."""
        return run(*args, "--store", self.store_url, "--image", str(self.image_path), environment=environment)

    def change_image(self, **changes: Any) -> None:
        """Write the image again, with other parts."""
        self.metadata |= changes
        self.image_path.write_text(json.dumps(self.metadata))

    @property
    def listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.metadata["nodes"][0]["stream_set_objects"]
        return found


def make_world(tmp_path: Path, store: ObjectStore | None = None, store_url: str = "") -> World:
    """The node, in memory unless a store is given."""
    store_url = store_url or f"memory://{uuid4().hex}"
    store = store or open_store(store_url)
    write_objects(store, ISSUE_OBJECTS)
    world = World(store, store_url, tmp_path / "image.json")
    ranges = [{"range_index": 0, "start": 0, "end": 2000, "node_id": 4}]
    world.change_image(
        namespace=LAYOUT.namespace,
        version=7,
        streams=[{"stream_id": STREAM_ID, "start_offset": 0, "ranges": ranges}],
        nodes=[{"node_id": 4, "stream_set_objects": [_listed(store, object_id) for object_id, _, _ in ISSUE_OBJECTS]}],
    )
    return world


def write_objects(store: ObjectStore, rows: Iterable[tuple[int, int, int]]) -> None:
    """Objects that hold the stream from start to end, and as much of another one."""
    for object_id, start, end in rows:
        body = write_set_object([(STREAM_ID, start, end), (OTHER_STREAM_ID, start, end)])
        store.put(LAYOUT.object_key(object_id), body)


class Bucket:
    """A store in memory, and commands on it.

    Args:
        variables: of the environment of each command, beside the store.
    """

    def __init__(self, **variables: str) -> None:
        self.url = f"memory://{uuid4().hex}"
        self.variables = variables

    @property
    def store(self) -> ObjectStore:
        return open_store(self.url)

    def state(self) -> dict[str, str]:
        """All keys, and what they hold."""
        return {info.key: info.etag for info in self.store.list("")}

    def run(self, line: str, *words: str, stdin: bytes | None = None) -> Result:
        """A command: a line as it is typed, and words that follow as they are."""
        environment = {"ACCEL_STORE": self.url, **self.variables}
        return run(*shlex.split(line), *words, environment=environment, stdin=stdin)

    def done(self, line: str, *words: str, code: int | None = 0) -> str:
        """What a command prints that ends with this code, or with any."""
        found = self.run(line, *words)
        assert code is None or found.exit_code == code, found.output
        return found.stdout

    def json(self, line: str, *words: str, code: int | None = 0) -> Any:
        """The same as data."""
        return json.loads(self.done(line, *words, "--output", "json", code=code))

    def rows(self, line: str, *words: str) -> list[dict[str, Any]]:
        """Likewise, of a command that prints a row a line."""
        return [json.loads(each) for each in self.done(line, *words, "--output", "json").splitlines()]

    def error(self, line: str, *words: str) -> tuple[int, str, str]:
        """The exit code of a command that fails, and the kind and the message of its error, which comes with advice."""
        found = self.run(line, *words, "--quiet", "--output", "json")
        assert found.stdout == ""
        told = json.loads(found.stderr)
        assert told["advice"]
        return found.exit_code, told["type"], told["message"]

    def refusal(self, line: str, *words: str) -> tuple[int, str]:
        """The same without the message."""
        return self.error(line, *words)[:2]


def run(*args: str, environment: Mapping[str, str] | None = None, stdin: bytes | None = None) -> Result:
    """A command, in an environment that says nothing but this; what it raises unforeseen fails the test."""
    environment = {**NO_ENVIRONMENT, **(environment or {})}  # type: ignore[dict-item]  # None: not set
    result = CliRunner().invoke(main, args, env=environment, prog_name="accel", input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def _listed(store: ObjectStore, object_id: int) -> dict[str, Any]:
    size_bytes = store.get(LAYOUT.object_key(object_id)).object_size_bytes
    return {"object_id": object_id, "order_id": object_id, "size": size_bytes}
