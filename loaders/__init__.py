"""All access to S3: the codec of objects, the stores, and the loading of object indexes.

Data flows one way: bytes (`store`) -> records (`format`) -> index (`object_index`) -> answer (package `accel`).
"""
