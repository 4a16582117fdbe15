"""The first call of a newcomer: what can mean one thing is taken, and all else is refused in words at the door."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import accel
from accel import (
    AsyncReadAccelerator,
    MetadataImage,
    ObjectCatalog,
    ReadAccelerator,
    Settings,
    StaticImages,
    StoreSettings,
    StreamStore,
    open_store,
)
from accel.server import Sidecar

IMAGE = MetadataImage.from_dict({"version": 1, "streams": [], "nodes": []})
STORE = open_store("memory://front-door")


def test_an_image_is_a_source_and_a_url_is_a_store() -> None:
    with (
        ReadAccelerator(IMAGE, "memory://front-door") as accelerator,  # type: ignore[arg-type]  # it is taken
        pytest.raises(accel.UnknownStream),
    ):
        accelerator.get_objects(1, 0, 1)
    assert AsyncReadAccelerator(IMAGE, STORE).stats().lookups.lookups == 0  # type: ignore[arg-type]  # likewise
    with pytest.raises(accel.errors.CatalogMissing):
        ObjectCatalog.open("memory://front-door")  # type: ignore[arg-type]  # likewise


SWAPPED: dict[str, Callable[[], object]] = {
    "source, found MemoryStore": lambda: ReadAccelerator(STORE, StaticImages(IMAGE)),  # type: ignore[arg-type]
    "store, found StaticImages": lambda: ReadAccelerator(StaticImages(IMAGE), StaticImages(IMAGE)),  # type: ignore[arg-type]
    "source, found dict": lambda: ReadAccelerator({}, STORE),  # type: ignore[arg-type]
    "settings, found StoreSettings": lambda: ReadAccelerator(IMAGE, STORE, settings=StoreSettings()),  # type: ignore[arg-type]
    "settings, found Settings": lambda: open_store("memory://a", Settings()),  # type: ignore[arg-type]
    "image, found MemoryStore": lambda: StaticImages(STORE),  # type: ignore[arg-type]
    "store, found MetadataImage": lambda: ObjectCatalog.open(IMAGE),  # type: ignore[arg-type]
    "tables, found MetadataImage": lambda: StreamStore(IMAGE),  # type: ignore[arg-type]
    "url, found MetadataImage": lambda: accel.connect(IMAGE),  # type: ignore[arg-type]
    "store as url, found MetadataImage": lambda: Sidecar(IMAGE),  # type: ignore[arg-type]
    "store, found 'bucket/prefix'": lambda: ReadAccelerator(IMAGE, "bucket/prefix"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("words", SWAPPED)
def test_arguments_of_another_kind_are_refused_in_words(words: str) -> None:
    with pytest.raises(ValueError, match=rf"expected .* {words}"):
        SWAPPED[words]()


@pytest.mark.parametrize("name", ["bloom", "loaders", "range_index"])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_package_of_another_project_is_noticed_at_import(name: str, is_mixed: bool, tmp_path: Path) -> None:
    own = Path(accel.__file__).parents[1]
    for each in ("accel", "bloom", "loaders", "range_index"):
        if not (is_mixed and each == name):
            (tmp_path / each).symlink_to(own / each)
    foreign = (tmp_path if is_mixed else tmp_path / "first") / name / "__init__.py"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("VERSION = 1\n")
    path = os.pathsep.join([str(tmp_path / "first"), str(tmp_path)])
    environment = {**os.environ, "PYTHONPATH": path}
    run = subprocess.run(
        [sys.executable, "-c", "import accel"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=foreign.parents[1],
        check=False,
    )
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert last.startswith("ImportError: expected the package")
    assert str(foreign) in last
