"""Mutants: the core with one small mistake at a time, and whether its tests find it.

    areas        what is mutated, and which tests are to find it
    mutations    the mistakes that a module could have, as edits of its syntax tree
    running      a process for each mutant, in which its module is the mutated one, and the tests of its area
    equivalent   mutants that no test can find, each with the reason, written by hand
    __main__     `python -m tests.mutants`: draws a sample, runs it, and reports

Known tools (mutmut, cosmic-ray) mutate a copy of the whole tree, or start an interpreter for each mutant, which takes
longer here than the tests; neither draws a sample by area. A child of a process that has imported the libraries begins
in milliseconds, and the mutated source replaces the module when the child imports it: no file is changed.
"""
