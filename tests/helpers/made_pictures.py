"""Small pictures in files of every kind."""

from __future__ import annotations

import io
from typing import Any


def picture(mode: str = "RGB", size: tuple[int, int] = (12, 8)) -> Any:
    """A gradient, so that turning or cropping it shows."""
    from PIL import Image

    return Image.linear_gradient("L").resize(size).convert(mode)


def stored(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    """A picture's file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()
