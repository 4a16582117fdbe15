"""Histories: their rules, their records, their store."""
