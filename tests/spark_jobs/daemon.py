"""The daemon of Spark's Python processes that has imported what tasks need: each process of a task is a fork of it.

Tests that let tasks fail start dozens of these processes, as Spark goes on with a new one after an error.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

MODULES = ("boto3", "pyarrow.compute", "pyspark.worker", "spark_jobs.compact", "spark_jobs.hints", "spark_jobs.survey")
MODULES_OF_SOURCES = ("spark_jobs.source", "spark_jobs.event_source")

if __name__ == "__main__":
    for name in (*MODULES, *MODULES_OF_SOURCES):
        with suppress(ImportError):  # a task that needs it says so
            import_module(name)
    gc.freeze()
    manager()
