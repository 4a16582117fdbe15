"""The commands that read: `accel get-objects`, `accel explain` and `accel read`."""
