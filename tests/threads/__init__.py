"""Classes that threads share: sixteen threads on each of them, which switch where a lock is taken or released.

boundaries.py          the lock whose boundaries are places to switch, and who was called by which thread
scenarios.py           what the threads do, and what has to be true afterwards
shared.py              each class that says "Threads: any": in which scenario it is, or where else it is held to it
"""
