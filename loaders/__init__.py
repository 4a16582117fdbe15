"""Everything that touches S3: the codec of objects, the stores, and what loads object indexes from them.

Data flows one way: bytes (`store`) -> records (`format`) -> index (`object_index`) -> answer (package `accel`).
"""
