"""A data source for Spark: the metadata and the contents of objects as tables, for SQL."""

from spark_jobs.source.data_source import StreamSetSource, register

__all__ = ["StreamSetSource", "register"]
