"""Merges many objects into few: the part of compaction that moves bytes.

    refs --reading--> indexes --plan--> destination of each byte --merger--> outputs, written and read back

`plan` needs only the indexes and `checks` only bytes and indexes; neither uses a store. `reading` opens the sources and
reads them in bands, `sending` writes the outputs, and `merger` does a whole merge.
"""
