"""The paper's evaluation: solo, handoff, drift, legibility, and tests of significance.

Importing this package imports neither torch nor vllm nor SciPy.
"""
