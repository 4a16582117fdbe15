"""The indexes made of sorted runs."""
