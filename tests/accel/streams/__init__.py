"""Writing and reading streams."""
