"""Groups of readers: who reads which segments, kept in a table that all of them change by compare-and-set."""
