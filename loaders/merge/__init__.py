"""Merges many objects into one: what compaction does with bytes.

    refs --reading--> indexes --plan--> which bytes go where --merger--> outputs, written and read back

`plan` decides from the indexes alone and `checks` proves from bytes and indexes alone; neither knows a store. `reading`
opens what is merged and reads it in bands, `sending` writes what comes out, and `merger` does a whole merge.
"""
