"""The servers that tests talk to."""
