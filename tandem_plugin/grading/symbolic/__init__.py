"""What runs in worker processes: computer algebra on untrusted text."""
