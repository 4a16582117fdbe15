"""All code that uses Spark: the jobs, their commands, and the data source. See docs/how-to/jobs.md.

The logic of the jobs is in `accel` and `loaders` and runs without Spark; this package divides the work among tasks.
"""
