"""Shared code of the trainer adapters: authorship of trajectories, and checks of batches.

No trainer is imported here; the adapters translate between their framework and these modules.
"""
