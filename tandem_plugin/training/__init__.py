"""What every trainer's adapter needs: who wrote a trajectory, and what must hold of a batch.

No trainer is imported here; the adapters translate between their framework and these modules.
"""
