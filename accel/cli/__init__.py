"""The command line: `accel --help`.

One folder a command group. A command computes a result and hands it to an `Output` of `accel.rendering`, which is the
only place that prints: text for people or JSON for programs on stdout, everything else on stderr. `main.py` puts the
groups together; `options.py` has the options that commands share.
"""
