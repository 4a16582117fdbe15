"""Tests of adoption: imports of buckets, compaction for controllers, AutoMQ's metadata."""
