"""Versioned tables on an object store: values by key, written by compare-and-set.

`tables` creates, finds and drops tables, and lists the keys of one; `typed_key` reads and writes records of one class
at one key; `counters` allocates ids; `conditional_write` defines the bytes around a value, and finds the outcome of a
write without a clear reply; `records` defines the bytes of records, `columns` those of their rows; `format_record`
stores the settings of a whole bucket; `probe` finds out how its endpoint treats conditional writes.
"""

from __future__ import annotations

from loaders.tables.counters import IdBlocks, check_counter
from loaders.tables.format_record import (
    FORMAT_FORM,
    FORMAT_VERSION,
    FormatRecord,
    create_format,
    identify_catalog,
    read_format,
    renew_format,
)
from loaders.tables.probe import probe_conditions, require_conditions
from loaders.tables.records import FormRegistry, RecordForm, form_of
from loaders.tables.tables import Table, Tables
from loaders.tables.typed_key import BYTES, RecordCache, TypedKey, raw_key
from loaders.versions import Entry, Version, Versioned

__all__ = [
    "BYTES",
    "FORMAT_FORM",
    "FORMAT_VERSION",
    "Entry",
    "FormRegistry",
    "FormatRecord",
    "IdBlocks",
    "RecordCache",
    "RecordForm",
    "Table",
    "Tables",
    "TypedKey",
    "Version",
    "Versioned",
    "check_counter",
    "create_format",
    "form_of",
    "identify_catalog",
    "probe_conditions",
    "raw_key",
    "read_format",
    "renew_format",
    "require_conditions",
]
