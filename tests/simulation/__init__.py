"""One simulated world: everybody who shares a bucket, step by step, in an order that a seed decides and that repeats.

scheduler, blocking   who goes next, in simulated time; locks and threads of the code under test, as tasks see them
world, machine_store  the bucket, its machines with their clocks, and what goes wrong with their requests
actors, collectors, undoers, lookups    those of the catalog
histories, streams    those of a stream's history, and of a stream of events
people, endings       what a person types, and streams that end while a thread writes to them
damage, transaction_rot, repairs       storage that goes bad, and what an operator does about it
invariants, quiet     what must be true after every write, and when nothing goes wrong any more
runs, shorten         all of them together; a failing run made shorter
planted               mistakes that must be found
report                figures of runs

What must be true and is not is raised as a `Violation`. `python -m tests.simulation --help` runs worlds by hand.
"""
