"""What runs in worker processes: computer algebra on text that nobody vouches for."""
