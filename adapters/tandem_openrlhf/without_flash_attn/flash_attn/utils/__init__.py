"""See :mod:`flash_attn`."""
