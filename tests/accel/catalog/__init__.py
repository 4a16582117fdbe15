"""The object catalog."""
