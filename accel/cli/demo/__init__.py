"""The command `accel demo`: its nodes, the runs over them, the report, and the S3 server inside the process."""
