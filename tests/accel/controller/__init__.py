"""Tests of what brokers with a controller of their own use."""
