"""Stands for flash-attn where that is not installed: OpenRLHF imports it even where it is unused.

A folder to put on PYTHONPATH, which ``tandem path without-flash-attn`` prints: every process of a
run then imports it in flash-attn's place. It computes nothing: samples are padded, not packed, and
attention is PyTorch's own (``--ds.attn_implementation sdpa``). Versions: OpenRLHF 0.11. Goes when:
OpenRLHF imports flash-attn where it packs samples, and there alone.
"""
