"""The store seam: one contract for every store, and what each adds to it."""
