"""Ways for a weak senior to learn from a stronger partner, compared."""
