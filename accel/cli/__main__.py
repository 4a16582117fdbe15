"""`python -m accel.cli` is `accel`."""

from accel.cli.main import main

main(prog_name="accel")
