"""Everything that touches Spark: the jobs, their commands, and the data source. See docs/how-to/jobs.md.

What a job decides and does is in `accel` and `loaders` and runs without Spark; here it is divided among tasks.
"""
