"""The script for spark-submit: runs `accel job` in the session that spark-submit has prepared.

spark-submit --master yarn --py-files accel.zip submit.py compact s3://bucket/prefix
"""

from __future__ import annotations

import sys

from accel.cli.main import main

if __name__ == "__main__":
    sys.argv = ["accel", "job", *sys.argv[1:]]
    main()
