"""Files that editors and shells of Windows write: with a byte-order mark, with CRLF, in UTF-16."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest

from accel.cli.serving import _token
from accel.errors import InvalidArgument
from tests.accel.cli.worlds import World, make_world, run

FORMS = {"a mark": codecs.BOM_UTF8, "no mark": b""}


@pytest.fixture
def lookup(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_a_settings_file(form: str, lookup: World, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(FORMS[form] + f'store = "{lookup.store_url}"\r\noutput = "json"\r\n'.encode())
    words = ("get-objects", "--image", str(lookup.image_path), "--stream", "420000", "--start", "0", "--end", "100")
    found = run("--config", str(path), *words)
    assert (found.exit_code, json.loads(found.stdout)["objects"] != []) == (0, True)


@pytest.mark.parametrize("form", FORMS)
def test_an_image_and_saved_lookups(form: str, lookup: World) -> None:
    lookup.image_path.write_bytes(FORMS[form] + lookup.image_path.read_bytes())
    assert lookup.run("get-objects", "--stream", "420000", "--start", "0", "--end", "100").exit_code == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_token(form: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(FORMS[form] + b"abcdefghijklmnop1234\r\n")
    assert _token(path) == "abcdefghijklmnop1234"
    path.write_bytes("abcdefghijklmnop1234\r\n".encode("utf-16"))
    with pytest.raises(InvalidArgument, match="found bytes that are not UTF-8"):
        _token(path)
