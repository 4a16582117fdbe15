"""Runs case files and objects with exact expected answers: `python -m tests.conformance FILE_OR_DIR ...`.

Five formats are known: lookups (`get_objects.json`), objects that a production writer wrote (a `manifest.json` beside
them), the answers that the production system gave over these objects (`get_objects_answers.json`), stream histories
(`stream_history.json`) and time indexes with a reader (`time_order.json`). Everything runs through the project's public
classes. A line is printed for each failure, and `N passed, M failed` at the end; the exit code is 1 if anything failed
or nothing ran.
"""
