"""The script for spark-submit: runs a job of `accel catalog` in the session that spark-submit has prepared.

spark-submit --master yarn --py-files accel.zip submit.py compact s3://bucket/prefix
"""

from __future__ import annotations

import sys

from accel.cli.main import main

if __name__ == "__main__":
    job, *rest = sys.argv[1:] or ["--help"]
    sys.argv = ["accel", "catalog", job, *(() if job.startswith("-") else ("--spark",)), *rest]
    main(prog_name="accel")
