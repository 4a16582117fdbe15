"""A streaming query from a stream into Parquet files that may be killed: run as a program by the test.

    python -m tests.spark_jobs.killed_query URL FOLDER HOW

HOW is `between`: SIGKILL once a batch was committed; or a payload: SIGKILL when a task reads it, so within a batch.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.system import SYSTEM
from spark_jobs.session import session
from spark_jobs.source import register
from tests.spark_jobs.clusters import CORES, SHORT_LIVED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK_SECONDS = 0.02
EVENTS_A_BATCH = 40


def written_to(folder: Path, frame: DataFrame) -> DataStreamWriter:
    """A query that writes Parquet files."""
    writing = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    return writing.option("checkpointLocation", str(folder / "checkpoint"))


def main(url: str, folder: str, how: str) -> None:
    """Run the query, and kill its processes as the argument says."""
    with session(f"local[{CORES}]", config={"spark.driver.defaultJavaOptions": SHORT_LIVED}) as spark:
        register(spark)
        processes = spark.sparkContext._gateway.proc.pid, os.getpid()  # type: ignore[union-attr]  # it runs

        def kill() -> None:
            for process_id in processes:
                os.kill(process_id, signal.SIGKILL)

        def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                if how.encode() in batch["payload"].to_pylist():
                    kill()

        options = {"table": "events", "scope": "shop", "stream": "orders", "maxEventsPerTrigger": str(EVENTS_A_BATCH)}
        frame = spark.readStream.format("streamset").options(**options).load(url)
        writing = written_to(Path(folder), frame.mapInArrow(passed, frame.schema))
        if how != "between":
            writing.trigger(availableNow=True).start().awaitTermination()
        query = writing.trigger(processingTime="1 hour").start()
        while query.lastProgress is None:
            SYSTEM.sleep(LOOK_SECONDS)
        kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
