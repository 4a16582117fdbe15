"""Runs case files and objects with exact expected answers: `python -m tests.conformance FILE_OR_DIR ...`.

Three formats are known: lookups (`get_objects.json`), objects that a production writer wrote (a `manifest.json` beside
them), and the answers that the production system gave over these objects (`get_objects_answers.json`). Everything runs
through the project's public classes. A line is printed for each failure, and `N passed, M failed` at the end; the exit
code is 1 if anything failed or nothing ran.
"""
