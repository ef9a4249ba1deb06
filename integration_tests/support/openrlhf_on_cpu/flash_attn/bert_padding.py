"""The names that OpenRLHF imports; packing samples needs flash-attn itself."""

from typing import Any


def _needs_flash_attn(*arguments: Any, **options: Any) -> Any:
    raise RuntimeError("Packing samples needs flash-attn, which this machine does not have.")


index_first_axis = pad_input = rearrange = unpad_input = _needs_flash_attn
