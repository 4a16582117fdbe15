"""`accel read` prints one line a batch, and says in the end where the next read goes on."""

from __future__ import annotations

import base64
import errno
import io
import json

import pytest

from accel.cli.main import main
from loaders.format import RecordBatch
from loaders.object_writer import ObjectWriter
from tests.accel.cli.worlds import LAYOUT, STREAM_ID, World

RANGE = ("--stream", str(STREAM_ID), "--start", "0", "--end", "200")


def rewrite(world: World, object_id: int, *batches: RecordBatch) -> None:
    world.store.delete(LAYOUT.object_key(object_id))  # objects are written once
    with ObjectWriter(world.store, LAYOUT, object_id) as writer:
        writer.write(STREAM_ID, batches)
    world.listed[[each["object_id"] for each in world.listed].index(object_id)].pop("size")
    world.change_image()


def test_one_line_a_batch_and_the_end_on_stderr(world: World) -> None:
    result = world.run("read", *RANGE)
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["[0,", "105)", "epoch", "1", "12", "B"],
        ["[105,", "128)", "epoch", "1", "14", "B"],
        ["[128,", "259)", "epoch", "1", "14", "B"],
    ]
    assert result.stderr == "3 batches, 40 B; next offset 259: the end is reached\n"


def test_json_is_one_document_a_line(world: World) -> None:
    result = world.run("read", *RANGE, "--output", "json", "--payload", "text")
    assert json.loads(result.stdout.splitlines()[0]) == {
        "stream_id": STREAM_ID,
        "epoch": 1,
        "base_offset": 0,
        "end_offset": 105,
        "count": 105,
        "is_link": False,
        "payload_bytes": 12,
        "payload": "420000:0-105",
    }
    assert json.loads(result.stderr) == {
        "batches": 3,
        "payload_bytes": 40,
        "start_offset": 0,
        "next_offset": 259,
        "ending": "end",
        "stream_end": None,
    }


def test_payloads_come_in_the_form_that_is_asked_for(world: World) -> None:
    payload = b"\xff\x1b[2J\n\xc3\xbc"
    rewrite(world, 0, RecordBatch(STREAM_ID, 1, 0, 105, payload))

    def shown(form: str, *args: str) -> str:
        line = world.run("read", "--stream", "420000", "--start", "0", "--end", "9", "--payload", form, *args).stdout
        return str(json.loads(line)["payload"]) if args else line.split("  ")[-1].rstrip("\n")

    assert shown("hex") == payload.hex()
    assert base64.b64decode(shown("base64")) == payload
    assert shown("text") == "\\xff\\x1b[2J\\nü"  # nothing in it moves a cursor or ends the line
    assert shown("text", "--output", "json") == "\\xff\x1b[2J\nü"  # JSON has escapes of its own


def test_a_link_is_marked(world: World) -> None:
    rewrite(world, 0, RecordBatch(STREAM_ID, 1, 0, -105, b"elsewhere"))
    result = world.run("read", "--stream", "420000", "--start", "0", "--end", "9", "--payload", "text")
    assert result.stdout.endswith("9 B  link  elsewhere\n")


@pytest.mark.parametrize(
    ("args", "ending"),
    [
        (("--start", "1000"), "next offset 1085: a hole: no listed object continues there"),
        (("--start", "0", "--max-bytes", "20B"), "2 batches, 26 B; next offset 128: --max-bytes are reached"),
        (("--start", "5000"), "0 batches, 0 B; next offset 5000: the stream ends at 2000"),
        (("--start", "0", "--end", "9"), "1 batch, 12 B; next offset 105: the end is reached"),
    ],
)
def test_the_last_line_says_why_it_ended(world: World, args: tuple[str, ...], ending: str) -> None:
    result = world.run("read", "--stream", "420000", *args)
    assert result.exit_code == 0
    assert result.stderr.endswith(f"{ending}\n")


def test_quiet_leaves_the_last_line_out(world: World) -> None:
    assert world.run("read", *RANGE, "--quiet").stderr == ""
    assert world.run("read", *RANGE, "--quiet", "--output", "json").stderr == ""


def test_what_was_read_before_an_error_stays_printed(world: World) -> None:
    key = LAYOUT.object_key(2)
    body = bytearray(world.store.get(key).body)
    at = body.index(b"\x5a\x02", 1)  # the block of the second stream
    body[at] ^= 1
    world.store.put(key, body)
    result = world.run("read", *RANGE, "--output", "json")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 1
    assert json.loads(result.stderr)["type"] == "CorruptObject"


def test_a_read_wants_at_least_a_byte(world: World) -> None:
    assert world.run("read", *RANGE, "--max-bytes", "0").exit_code == 2


class ClosedPipe(io.StringIO):
    """A reader that went away."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_closed_pipe_ends_it_without_a_word(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stdout", ClosedPipe())
    monkeypatch.setattr("sys.stderr", stderr)
    with pytest.raises(SystemExit) as caught:
        main.main(["read", *RANGE, "--store", world.store_url, "--image", str(world.image_path)])
    assert caught.value.code == 0
    assert stderr.getvalue() == ""
