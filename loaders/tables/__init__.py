"""Versioned tables on an object store: values by key, written by compare-and-set.

`tables` makes, finds and drops tables; `table` is the contract of one; `settle` brings a write whose reply is doubtful
to a certain end; `envelope` has the bytes around a value, `records` those within;
`cache` keeps what was read; `probe` finds out how an endpoint treats conditional writes, and `format_record` remembers
that, and what else holds for a whole bucket.
"""

from __future__ import annotations

from loaders.backoff import RetrySettings
from loaders.tables.cache import ValueCache
from loaders.tables.format_record import (
    FORMAT_FORM,
    FORMAT_VERSION,
    FormatRecord,
    create_format,
    probe_conditions,
    read_format,
    renew_format,
)
from loaders.tables.records import Fields, FormRegistry, RecordForm, form_of
from loaders.tables.table import Change, Table, Unreadable
from loaders.tables.tables import Tables
from loaders.tables.typed_key import IdBlocks, RecordCache, TypedKey, check_counter
from loaders.versions import Entry, Version, Versioned

__all__ = [
    "FORMAT_FORM",
    "FORMAT_VERSION",
    "Change",
    "Entry",
    "Fields",
    "FormRegistry",
    "FormatRecord",
    "IdBlocks",
    "RecordCache",
    "RecordForm",
    "RetrySettings",
    "Table",
    "Tables",
    "TypedKey",
    "Unreadable",
    "ValueCache",
    "Version",
    "Versioned",
    "check_counter",
    "create_format",
    "form_of",
    "probe_conditions",
    "read_format",
    "renew_format",
]
