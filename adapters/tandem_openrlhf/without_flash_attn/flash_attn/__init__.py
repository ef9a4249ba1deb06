"""A stand-in for flash-attn if it is not installed: OpenRLHF imports it even if it is unused.

A folder to put on PYTHONPATH, which ``tandem path without-flash-attn`` prints: every process of a
run then imports it instead of flash-attn. It computes nothing: samples are padded, not packed, and
attention is PyTorch's own (``--ds.attn_implementation sdpa``). Versions: OpenRLHF 0.11. Goes when:
OpenRLHF imports flash-attn only where it packs samples.
"""
