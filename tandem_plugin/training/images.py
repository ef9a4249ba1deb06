"""Images in a trainer's prompts: what an adapter checks before it sends them to an engine.

The trainer's forward pass and the engine must see the same pixels at the same tokens.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tandem_plugin.errors import ConfigError

_ORIENTATION = 0x0112
"""The EXIF tag of a picture's orientation; 1 is upright."""


def check_pictures(pictures: Iterable[Any], *, images: bool) -> None:
    """Raise :class:`ConfigError` for pictures that engine and trainer would see differently.

    pictures: of a prompt. images: the run's setting. vLLM turns a picture by its
    EXIF orientation and puts transparent ones on white; processors of Hugging Face do neither.
    Source: ``normalize_image`` and ``convert_image_mode`` of vLLM 0.29.
    """
    for picture in pictures:
        if not images:
            raise ConfigError("prompt-images-off")
        if not hasattr(picture, "getexif"):
            continue  # no picture of Pillow's: left to the engine
        orientation = picture.getexif().get(_ORIENTATION, 1)
        if orientation != 1:
            raise ConfigError("picture-not-upright", orientation=orientation)
        if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
            raise ConfigError("picture-transparent", mode=picture.mode)


def prompt_of_engine(token_ids: Sequence[int], vllm_config: Any) -> list[int]:
    """A prompt as vLLM expects it, from one with every placeholder of its images."""
    from tandem_plugin.engine.junior import placeholder_ids

    return collapsed(token_ids, placeholder_ids(vllm_config))


def collapsed(token_ids: Sequence[int], placeholders: Collection[int]) -> list[int]:
    """A prompt with one placeholder per image, as vLLM expects it, from one with all of them.

    Runs of equal placeholders become one.
    """
    return [
        token_id
        for place, token_id in enumerate(token_ids)
        if token_id not in placeholders or place == 0 or token_ids[place - 1] != token_id
    ]


def dumped_images(row: Mapping[str, Any], small: dict[int, list[str]]) -> dict[str, list[str]]:
    """A data set's images in a row as a dump has them; empty without any of Pillow's.

    small: those made before, by the identity of their column's value, since a prompt's rows have
    the same images; it grows.
    """
    column = row.get("images") or row.get("image")
    pictures = column if isinstance(column, list | tuple) else [column]
    if not column or not all(hasattr(picture, "getexif") for picture in pictures):
        return {}
    if id(column) not in small:
        small[id(column)] = [thumbnail_url(picture) for picture in pictures]
    return {"images": small[id(column)]}


_SMALL = 320
"""The longer side of a thumbnail, in pixels."""


def thumbnail_url(picture: Any) -> str:
    """A small JPEG of one of Pillow's pictures, as a ``data:`` URL: for ``tandem view``.

    Turned upright, on white, and the first of its frames. Raises what Pillow raises for a file that
    it cannot decode.
    """
    from PIL import Image, ImageOps

    small = picture.copy()
    small.thumbnail((_SMALL, _SMALL))
    upright = ImageOps.exif_transpose(small)
    if upright.has_transparency_data:
        behind = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(behind, upright.convert("RGBA"))
    file = io.BytesIO()
    upright.convert("RGB").save(file, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
