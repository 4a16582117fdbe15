"""What happens in other processes than the one that opened something, and after it was closed; and whole programs."""
