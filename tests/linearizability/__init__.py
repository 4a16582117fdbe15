"""Processes on one bucket of a real server that are killed and stopped and lose requests, and a check of their answers.

python -m tests.linearizability --seconds 1800 --seed 7     on the server that the environment names, or on Ceph

process     one of four operating system processes; its seed decides what it does
late_store  the proxy of each process: requests are lost, come late, or are sent twice
supervisor  starts processes, kills and stops them, and reads the bucket when all is quiet
histories   the log of each process: when an operation began and ended, and with what
checker     whether the operations could have happened one after the other, each between its begin and its end
models      what each operation would then return: a key of a table, the end of a stream, its first kept offset
verdicts    all histories of a run against all models
planted     mistakes in the code under test that a run finds
"""
