"""The result of a job as a DataFrame, for notebooks and for whoever keeps a table of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def row_frame(spark: SparkSession, row: Mapping[str, int | float]) -> DataFrame:
    """One row of numbers: whole ones, and `seconds`.

    Args:
        spark: the session.
        row: of a report: `report.row()`.
    """
    values = [float(value) if name == "seconds" else value for name, value in row.items()]
    columns = ", ".join(f"{name} {'DOUBLE' if name == 'seconds' else 'BIGINT'}" for name in row)
    return spark.createDataFrame([tuple(values)], columns)
