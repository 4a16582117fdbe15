"""The read path: a question about offsets goes in, the objects that hold them come out."""
