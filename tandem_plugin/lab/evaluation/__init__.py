"""The paper's evaluation: solo, handoff, drift, legibility, and what of it is significant.

Importing this package imports neither torch nor vllm nor SciPy.
"""
