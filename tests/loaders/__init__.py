"""What stands between stores and lookups: opening and writing objects."""
