"""The sidecar over HTTP."""
