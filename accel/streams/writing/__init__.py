"""Writing a stream: a host of segments in object storage, and writers that route events to them by key."""
