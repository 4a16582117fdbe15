"""Tests of the writer of streams, and of the host that keeps segments in object storage."""
