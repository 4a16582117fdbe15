"""The codec of objects: what it reads, what it writes, and what it refuses."""
