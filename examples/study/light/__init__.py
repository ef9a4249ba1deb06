"""Tandem GRPO in one process, in plain PyTorch: small enough for many seeds on a CPU.

Schedules, draws, replay, grading and the measures of evaluation are the product's own.
"""
