"""Two streaming queries from a stream into Parquet files whose program is killed: run as a program by the test.

    python -m tests.spark_jobs.killed_query URL FOLDER PAYLOAD

The query in the folder `between` has committed a batch and waits for its next trigger. That in the folder `within` goes
on from batch to batch until a task has read the payload: the task ends the program, with its JVM, by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_jobs.session import session
from spark_jobs.source import register
from tests.spark_jobs.clusters import CORES, wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EVENTS_A_BATCH = 40


def written_to(folder: Path, frame: DataFrame) -> DataStreamWriter:
    """A query that writes Parquet files."""
    writing = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    return writing.option("checkpointLocation", str(folder / "checkpoint"))


def main(url: str, folder: str, payload: str) -> None:
    """Run the queries."""
    with session(f"local[{CORES}]") as spark:
        register(spark)
        processes = spark.sparkContext._gateway.proc.pid, os.getpid()  # type: ignore[union-attr]  # it runs

        def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                if payload.encode() in batch["payload"].to_pylist():
                    for process_id in processes:
                        os.kill(process_id, signal.SIGKILL)

        options = {"table": "events", "scope": "shop", "stream": "orders", "maxEventsPerTrigger": str(EVENTS_A_BATCH)}
        frame = spark.readStream.format("streamset").options(**options).load(url)
        between = written_to(Path(folder, "between"), frame).trigger(processingTime="1 hour").start()
        wait_for(lambda: between.lastProgress or not between.isActive, lambda: "no batch was committed")
        within = written_to(Path(folder, "within"), frame.mapInArrow(passed, frame.schema))
        within.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
