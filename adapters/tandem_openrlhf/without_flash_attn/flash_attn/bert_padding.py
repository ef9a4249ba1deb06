"""The names by which OpenRLHF packs samples, which needs flash-attn itself."""

from typing import Any


def needs_flash_attn(*arguments: Any, **options: Any) -> Any:
    """Raise :class:`RuntimeError`: whatever is called here belongs to flash-attn."""
    raise RuntimeError(
        "Packed samples and ring attention need flash-attn, in whose place a stand-in is on "
        "PYTHONPATH. Install flash-attn, or remove --ds.packing_samples and --ds.ring_attn_size."
    )


index_first_axis = pad_input = rearrange = unpad_input = needs_flash_attn
