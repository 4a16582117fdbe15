"""Merging objects: what is planned, what is proved, and what a store holds in the end."""
