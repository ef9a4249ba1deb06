"""What runs in worker processes only: computer algebra on text that nobody vouches for."""
