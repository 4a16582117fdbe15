"""The command `accel demo`: its nodes, its measurements, its report, and the S3 server inside the process."""
