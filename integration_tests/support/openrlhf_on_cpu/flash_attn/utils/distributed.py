"""The name that OpenRLHF imports; ring attention needs flash-attn itself."""

from flash_attn.bert_padding import _needs_flash_attn as all_gather  # noqa: F401
