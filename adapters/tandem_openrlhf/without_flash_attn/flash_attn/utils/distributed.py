"""The name by which OpenRLHF gathers what ring attention cut, which needs flash-attn itself."""

from ..bert_padding import needs_flash_attn as all_gather

__all__ = ["all_gather"]
