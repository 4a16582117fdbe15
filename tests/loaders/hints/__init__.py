"""Filter packs and index snapshots: formats, writers and readers."""
