"""Histories in tables: questions, workflows, crashes, races."""
