"""What `import accel` gives: everything by name, and nothing loaded that a reader of pushed images does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

import accel
from accel.catalog import CatalogSettings, ObjectCatalog
from accel.history.rules.configuration import StreamConfiguration
from accel.history.store import StreamStore
from loaders.tables import FormatRecord
from tests.docs.pages import ROOT


def test_catalogs_and_histories_are_loaded_when_they_are_first_asked_for() -> None:
    code = (
        "import sys, accel; assert 'accel.catalog' not in sys.modules; assert 'ObjectCatalog' in dir(accel); "
        "accel.ObjectCatalog; assert 'accel.catalog' in sys.modules; assert 'ObjectCatalog' in vars(accel); "
        "assert 'accel.history.store' not in sys.modules; accel.StreamStore; accel.history.store.Stream"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0  # noqa: S603 - our own words


def test_it_is_the_same_wherever_it_is_imported_from() -> None:
    assert accel.ObjectCatalog is ObjectCatalog
    assert (accel.CatalogSettings, accel.FormatRecord) == (CatalogSettings, FormatRecord)
    assert (accel.StreamStore, accel.StreamConfiguration) == (StreamStore, StreamConfiguration)


def test_a_name_that_is_not_there_is_refused_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'accel' has no attribute 'nothing'"):
        _ = accel.nothing  # type: ignore[attr-defined]  # must fail
    with pytest.raises(ImportError):
        from accel import nothing  # type: ignore[attr-defined]  # noqa: F401, PLC0415 - must fail


def test_all_public_names_can_be_listed() -> None:
    assert set(accel.__all__) <= set(dir(accel))
