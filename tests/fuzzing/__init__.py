"""Whatever bytes and texts come from outside: each decoder answers rightly, or raises an error of ours.

| module     | what it has |
|---|---|
| registry   | every decoder: its seeds, its errors, the way back, how its checksum is repaired |
| mutations  | seeded changes: bits, bytes, numbers, digits, splices, fields of records, columns |
| judging    | one input: refused, harmless, another value; the round trip; memory |
| running    | many inputs, in several processes |
| corpus     | what is checked in, a folder a decoder; run, it writes seeds that are missing |

`python -m tests.fuzzing --seconds 60` goes on so long; `--objects 1000000 --page` tells docs/operations/reliability.md.
"""
