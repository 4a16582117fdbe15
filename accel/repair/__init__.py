"""Repair of what is stored: damaged and missing records are rebuilt from others.

    streams            the records of one stream: `repair_stream`
    epochs             its epochs and the index of their times
    catalog            the keys of a catalog: `repair`
    objects            missing and damaged live objects, from a copy of the bucket: `put_back`
    lost_objects       live objects that no copy of the bucket has: `give_up`
    sketches           missing and wrong sketches of a node's list: `sketch_list`
    findings           wrong records, and the outcome of each: the same for all that is repaired

Only the command line imports this room.
"""
