"""What a broker imports."""
