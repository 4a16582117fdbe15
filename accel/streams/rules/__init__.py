"""The rules of reading and writing streams, without I/O, a clock or a thread."""
