"""Stands for flash-attn, which OpenRLHF imports everywhere and a machine without a GPU lacks."""
