"""The rules of a stream's history: its records, and every decision about them, as values and functions.

    values, segments                     ids, columns and checks of what is given; segments and key ranges
    configuration, states                what a stream's owner wants; how it comes to be, and which steps its life has
    epochs, scaling                      epochs and what changed between them; how one leads to the next
    cuts, retention                      positions in a stream; which part of it is kept
    transactions, requests               transactions until they end; what a workflow is to do

Pure: no store, no table, no clock, no I/O. `accel.history.records` has the bytes of the records, `accel.history.store`
carries the decisions out.
"""
