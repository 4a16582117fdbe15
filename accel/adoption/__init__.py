"""For those who come with a bucket or with a controller: foreign objects become a catalog, a controller's get merged.

Optional. `importing` makes the catalog of a bucket whose objects exist already, with the records of `import_plan`;
`controller` compacts objects whose metadata a controller keeps; `automq` converts AutoMQ's metadata to an image. Only
the command line, the Spark jobs and what reads AutoMQ's metadata know of this room.
"""
