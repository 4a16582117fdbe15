"""Streams that several processes write at the same time, and streams that scale by load. Only `connection` knows them.

    owners         the node id, the address and the lease of each process that writes
    forwarding     requests to the owner of a segment, and `SegmentService`, which handles them
    segments       `SharedSegments`: the segments of this process, and those of the other owners;
                   `Forwarding`: the events of a writer go to the owners of their segments
    auto_scale     splits and merges the segments of this process as the policies of streams require
    scaling_rates  without I/O: rates of segments, and the scales that a policy requires

Without this room a process writes the streams of its node by `StreamWriter` and `ObjectSegments`.
"""
