"""What `mkdocs build` adds to the pages of docs/: reference pages generated from the code, and pages of the root.

mkdocs calls these functions by their names (`hooks` in mkdocs.yml). The settings, the Python interface and the command
line are written by mkdocstrings and mkdocs-click from docstrings and commands; this module only says which, in which
order. Links of a page that lead out of docs/ become plain text, unless the page that they lead to is part of the site.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import accel
from accel.catalog.job_runs import JobStats
from accel.metrics import AccelCollector
from accel.streams.shared.auto_scale import AutoScaleStats
from accel.system import SYSTEM
from loaders.store import CountingStore, MemoryStore
from tests.docs import metadata_tables, records

ROOT: Final = Path(__file__).parents[2]
FROM_ROOT: Final = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
}
"""Pages of the root, and what they are called on the site."""

_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"(^`{3,}.*?^`{3,}$)", re.MULTILINE | re.DOTALL)

SETTINGS: Final = (
    ("Lookups: an accelerator", "accel.settings.Settings"),
    ("Clients of all stores on a network", "loaders.store.settings.StoreSettings"),
    ("The catalog", "accel.settings.CatalogSettings"),
    ("Compaction", "accel.compaction.settings.CompactionSettings"),
    ("Merging objects", "loaders.settings.MergeSettings"),
    ("A connection to streams", "accel.streams.settings.ConnectionSettings"),
    ("Readers of streams", "accel.streams.rules.settings.ReaderSettings"),
    ("Writers of streams", "accel.streams.settings.StreamWriterSettings"),
    ("Segments that a process owns", "accel.streams.settings.SegmentsSettings"),
    ("Maintenance by itself", "accel.maintenance.settings.MaintenanceSettings"),
    ("Owners of segments, and events that go to other owners", "accel.streams.settings.ForwardingSettings"),
    ("Histories", "accel.history.store.settings.HistorySettings"),
    ("The sidecar", "accel.server.settings.SidecarSettings"),
)

COUNTERS: Final = (
    "accel.lookup.stats.AcceleratorStats",
    "accel.lookup.stats.LookupStats",
    "accel.lookup.stats.IndexCacheStats",
    "loaders.object_index.LoaderStats",
    "accel.lookup.stats.HintStats",
    "loaders.store.hedged.HedgeStats",
    "loaders.counting.CacheStats",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages and those of the root."""
    pages = {
        "reference/cli.md": _command_line(),
        "reference/counters.md": _counters(),
        "reference/errors.md": _errors(),
        "reference/metadata-tables.md": metadata_tables.page(),
        "reference/metrics.md": _metrics(),
        "reference/python.md": _python(),
        "reference/records.md": records.page(),
        "reference/settings.md": _settings(),
    }
    pages |= {new: (ROOT / old).read_text() for old, new in FROM_ROOT.items()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Replaces links that leave docs/: by their text, or by the page of the site that they mean."""
    of_root = {new: old for old, new in FROM_ROOT.items()}
    here = str(PurePosixPath(page.file.src_uri).parent)
    there = "." if page.file.src_uri in of_root else f"docs/{here}"

    def replaced(match: re.Match[str]) -> str:
        if "://" in match["path"] or not match["path"]:
            return match[0]
        target = os.path.normpath(f"{there}/{match['path']}")
        on_site = FROM_ROOT.get(target) or target.removeprefix("docs/")
        if target not in FROM_ROOT and not target.startswith("docs/"):
            return match["text"]
        return f"{match['image']}[{match['text']}]({os.path.relpath(on_site, here)}{match['anchor'] or ''})"

    parts = _FENCE.split(markdown)
    return "".join(part if index % 2 else _LINK.sub(replaced, part) for index, part in enumerate(parts))


def _command_line() -> str:
    return """# Command line

Every command with its options, as `--help` prints them.

::: mkdocs-click
    :module: accel.cli.main
    :command: main
    :prog_name: accel
    :depth: 1
    :style: table
    :list_subcommands: True
"""


def _settings() -> str:
    sections = "".join(f"## {title}\n\n::: {name}\n\n" for title, name in SETTINGS)
    return f"# Settings\n\nAll settings are frozen values, with these defaults.\n\n{sections}"


def _python() -> str:
    settings = {name.rpartition(".")[2] for _, name in SETTINGS}
    names = sorted(set(accel.__all__) - settings, key=str.lower)
    errors = [name for name in names if name in dir(accel.errors)]
    others = [name for name in names if name not in errors]
    return "\n".join(
        [
            "# Python\n\nThe names of `accel`, and the modules beside it that are public.\n",
            *_references("Names of accel", (f"{getattr(accel, name).__module__}.{name}" for name in others)),
            *_references("Errors", (f"{getattr(accel, name).__module__}.{name}" for name in errors)),
            *_references("Modules", ("accel.tables", "accel.testing", "loaders.store", "loaders.tables")),
        ]
    )


def _references(title: str, names: Iterable[str]) -> list[str]:
    return [f"## {title}\n", *(f"::: {name}\n" for name in names)]


def _counters() -> str:
    return "\n".join(
        [
            "# Counters\n\nWhat `ReadAccelerator.stats()` and the sidecar's `/v1/stats` report.\n",
            *(f"::: {name}\n" for name in COUNTERS),
        ]
    )


def _errors() -> str:
    """Each error: its meaning, whether a repetition may help, and its advice."""
    rows = []
    for name in sorted(accel.errors.__all__):
        error = getattr(accel.errors, name)
        meaning = (inspect.getdoc(error) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append(f"| `{name}` | {meaning} | {'yes' if error.retryable else ''} | {error.advice} |")
    head = "# Errors\n\nAll errors descend from `AccelError`. The message has the details.\n\n"
    return head + "| error | meaning | retryable | advice |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _metrics() -> str:
    """Each metric: its name, kind, labels and meaning, as a scrape of an accelerator reports them."""
    image = accel.MetadataImage.from_dict({"streams": [], "nodes": []})
    store = CountingStore(MemoryStore(), SYSTEM.timer)
    settings = accel.Settings(slow_lookup_seconds=0.5)
    with accel.ReadAccelerator(accel.StaticImages(image), store, settings=settings) as accelerator:
        jobs = JobStats({"compact": 0.0}, 0)
        families = list(AccelCollector(accelerator, store, scaling=AutoScaleStats, jobs=lambda: jobs).collect())
    rows = []
    for family in families:
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        name = family.name + "_total" * (family.type == "counter")
        rows.append(
            f"| `{name}` | {family.type} | {', '.join(f'`{each}`' for each in labels)} | {family.documentation} |"
        )
    head = "# Metrics\n\nWhat `accel.metrics.AccelCollector` and the sidecar's `/metrics` report.\n\n"
    return head + "| metric | kind | labels | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
