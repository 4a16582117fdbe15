"""What anybody may have written into a bucket is shown as text: it steers no terminal, and no password is shown."""

from __future__ import annotations

import json
from uuid import uuid4

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from accel import MetadataImage
from accel.cli.main import AccelGroup
from accel.errors import ImageRefused, NameRefused
from accel.rendering import Folded, Output, Shown, printable, shown_text
from accel.system import SYSTEM
from loaders.errors import RequestRefused
from loaders.layout import KEY_SIZE_BYTES_MAX, ObjectLayout
from loaders.store import open_store
from loaders.tables import FormatRecord, Tables, raw_key
from tests.accel.cli.worlds import run

HOSTILE = "shop\x1b[2J\x1b]0;title\x07\u202egnp\u2066\u200f\r\x9b31m\u0085"
FORBIDDEN = "\x1b\x07\u202e\u2066\u200f\r\x9b\u0085"


def hostile() -> Shown:
    """A result with hostile text in every place that a person sees."""
    table = Table("name", HOSTILE)
    table.add_row("1", HOSTILE)
    return Shown({"name": HOSTILE}, [HOSTILE, f"one\ttwo\n{HOSTILE}", Folded(Text(HOSTILE, style="bold")), table])


def printed(is_json: bool, fails: bool = False) -> str:
    """All that a command prints."""

    @click.group(cls=AccelGroup)
    def program() -> None:
        """For the test."""

    @program.command()
    def show() -> None:
        """Show everything."""
        output = Output(is_json=is_json, is_verbose=True)
        output.show(hostile())
        output.show_each([hostile()])
        output.summary(hostile())
        output.note(HOSTILE)
        output.detail(HOSTILE)
        with output.progress(HOSTILE, 1) as step:
            step()
        if fails:
            raise RequestRefused("get", "k", f"{HOSTILE} http://me:secret@host/x")
        raise click.UsageError(f"{HOSTILE} http://me:secret@host/x")

    result = CliRunner().invoke(program, ["show"])
    return result.output


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_that_a_command_prints_steers_the_terminal(is_json: bool, fails: bool) -> None:
    text = printed(is_json, fails)
    assert "shop\\u001b[2J" in text
    assert "\\u202egnp" in text
    assert not set(text) & set(FORBIDDEN)
    assert "secret" not in text


@given(st.text())
def test_text_is_left_alone_but_for_what_is_not_printable(text: str) -> None:
    assert printable(text).isprintable()
    assert all(line.replace("\t", "").isprintable() for line in shown_text(text).split("\n"))
    assert shown_text(text).count("\n") == text.count("\n")
    kept = "".join(each for each in text if each.isprintable())
    assert printable(kept) == shown_text(kept) == kept


def test_a_record_that_is_shown_as_json_stays_json() -> None:
    text = '{"tag": "' + "a\x7f\u202e\u2028\U000e0001" + '"}'
    assert json.loads(shown_text(text)) == {"tag": "a\x7f\u202e\u2028\U000e0001"}


def test_hostile_keys_and_values_of_a_table_are_escaped() -> None:
    url = f"memory://{uuid4().hex}"
    tables = Tables(open_store(url), nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter)
    tables.create_table("owners")
    raw_key(tables.table("owners"), "a\x1b[2J\u202eb").create(b"x")
    listed = run("table", "owners", "--store", url)
    assert listed.stdout == "a\\x1b[2J\\u202eb\n"
    shown = run("table", "owners", "a\x1b[2J\u202eb", "--store", url)
    assert shown.exit_code == 1
    assert not set(shown.output) & set(FORBIDDEN)


@pytest.mark.parametrize(
    "namespace", ["a\u202eb", "a\x1b[31m", "a\nb", "\ud800", "x" * 1025, "x" * 256, "", "a/b", "..", "ä" * 128]
)
def test_a_namespace_that_fits_no_key_is_refused_before_anything_is_written(namespace: str) -> None:
    for make in (lambda: FormatRecord(namespace=namespace), lambda: ObjectLayout(namespace=namespace)):
        with pytest.raises(NameRefused, match="expected a namespace of"):
            make()
    with pytest.raises(ImageRefused, match="image: expected a namespace of"):
        MetadataImage.from_dict({"streams": []}, namespace=namespace)
    url = f"memory://{uuid4().hex}"
    refused = run("catalog", "init", "--namespace", namespace, "--store", url)
    assert refused.exit_code == 2
    assert "expected a namespace of" in refused.output
    assert not set(refused.output) & set(FORBIDDEN)
    assert list(open_store(url).list("")) == []


def test_with_the_longest_namespace_every_object_has_a_key() -> None:
    layout = ObjectLayout(prefix="p" * 731, namespace="ä" * 127 + "x")
    assert len(layout.object_key(2**63 - 1).encode()) == KEY_SIZE_BYTES_MAX
