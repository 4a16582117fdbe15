"""Versioned tables: one contract for every store, and what each part promises."""
