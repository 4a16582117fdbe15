"""Several processes on one catalog, step by step, in an order that a seed decides and that can be repeated.

scheduler     who goes next; the clock
bucket        the store, with faults; what must be true of it is kept beside it (an oracle)
invariants    what must be true after every write
actors        uploaders, compactors, a collector, a trimmer, readers
runs          all of them together
"""
