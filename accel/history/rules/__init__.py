"""The rules of a stream's history: its records, and every decision about them, as values and functions.

    values, segments                     ids, columns and checks of arguments; segments and key ranges
    configuration, states                configuration of a stream; its creation and deletion, and its states
    epochs, scaling                      epochs and the changes between them; the step from one epoch to the next
    cuts, retention                      positions in a stream; the part of a stream that is kept
    transactions, requests               transactions until they end; plans of workflows

Pure: no store, no table, no clock, no I/O. `accel.history.records` defines the bytes of the records;
`accel.history.store` carries the decisions out.
"""
