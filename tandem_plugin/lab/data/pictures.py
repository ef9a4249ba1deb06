"""Pictures of problems: read from a row without the network, checked, and made small.

A picture is the bytes of an image file. Whatever is wrong with it is a :class:`PictureError`, a
sentence: a file from elsewhere never ends a command with an error of the library that decodes it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_plugin.errors import ConfigError, DataError, shown
from tandem_plugin.files import read_file, system_reason
from tandem_plugin.training.images import check_pictures, thumbnail_url

if TYPE_CHECKING:
    from PIL.Image import Image

PLACE = "<image>"
"""Stands in a text where a picture does: verl's placeholder, and that of public sets."""
MOST_PIXELS = 50_000_000
"""Of a picture. More would take a minute and a gigabyte to decode."""
_MOST_BYTES = 100_000_000
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Those that Pillow decodes by itself: PostScript would start a program."""
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DATA = re.compile(r"data:[\w/+.-]*;base64,", re.IGNORECASE)


class PictureError(ValueError):
    """A picture cannot be shown to a model; the text continues "Its image 1"."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that the engine and every trainer see in the same way."""

    content: bytes = field(repr=False)
    """Of its file."""
    digest: str
    """SHA-256 of its size and its pixels, whatever format the file has."""

    def image(self) -> Image:
        """The picture in RGB, as processors read it."""
        with _opened(self.content) as image:
            return image.convert("RGB")


def read_picture(value: Any, folder: Path | None = None) -> Picture:
    """The picture of a row; :class:`PictureError` if engine and trainer would see different ones.

    value: the bytes of a file, a mapping with ``bytes`` or ``path`` (Hugging Face's ``Image``), a
    path, a ``data:`` URL, or a picture of Pillow's. folder: where relative paths begin; None
    rejects paths.
    """
    content = picture_bytes(value, folder)
    with _opened(content) as image:
        frames = getattr(image, "n_frames", 1)
        if frames > 1 and image.format != "MPO":  # of which the further ones are previews
            raise PictureError(f"has {frames} frames, of which only the first would be seen.")
        try:
            check_pictures([image], images=True)
        except ConfigError as error:
            raise PictureError(f"cannot be trained on: {error.message}") from error
        pixels = image.convert("RGB")
    digest = hashlib.sha256(f"{pixels.size}\n".encode() + pixels.tobytes()).hexdigest()
    return Picture(content, digest)


def thumbnail(value: Any) -> str:
    """A picture of a row as a small ``data:`` URL; :class:`PictureError` if it has none.

    value: as of :func:`read_picture`; no other file is read.
    """
    with _opened(picture_bytes(value, None)) as image:
        return thumbnail_url(image)


def data_url(picture: Picture) -> str:
    """A picture's file as a ``data:`` URL."""
    from PIL import Image

    with _opened(picture.content) as image:
        kind = Image.MIME[str(image.format)]
    return f"data:{kind};base64,{base64.b64encode(picture.content).decode('ascii')}"


def picture_bytes(value: Any, folder: Path | None) -> bytes:
    """The bytes of a picture's file: see :func:`read_picture`."""
    if isinstance(value, Mapping):
        content, path = value.get("bytes"), value.get("path")
        value = path if content is None else content
        if isinstance(content, str):  # as JSON has bytes
            value = _of_base64(content)
    if isinstance(value, bytes | bytearray):
        return _limited(bytes(value))
    if isinstance(value, str):
        return _limited(_of_text(value, folder))
    if hasattr(value, "save") and hasattr(value, "getexif"):
        return _encoded(value)
    raise PictureError(f"is {shown(value)}, neither a file's bytes nor its path.")


def _of_text(text: str, folder: Path | None) -> bytes:
    """Of a path, or of a ``data:`` URL."""
    if match := _DATA.match(text):
        return _of_base64(text[match.end() :])
    if _URL.match(text) or text.startswith("data:"):
        raise PictureError(f"is at {shown(text)}: nothing is fetched; give the file or its bytes.")
    if folder is None:
        raise PictureError(f"is in a file, {shown(text)}, which is not read from here.")
    try:
        path = folder / text
        if path.is_file() and path.stat().st_size > _MOST_BYTES:
            raise PictureError(f"has more than {_MOST_BYTES:,} bytes.")
        return read_file(path)
    except (OSError, ValueError) as error:
        if isinstance(error, PictureError):
            raise
        reason = system_reason(error) if isinstance(error, OSError) else error
        raise PictureError(f"cannot be read from {shown(text)}: {reason}.") from error


def _of_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # also binascii.Error
        raise PictureError("has bytes that are not base64.") from None


def _limited(content: bytes) -> bytes:
    if len(content) > _MOST_BYTES:
        raise PictureError(f"has more than {_MOST_BYTES:,} bytes.")
    return content


def _encoded(picture: Image) -> bytes:
    """The file of a picture that a data set's library has decoded; its pixels stay as they are."""
    file = io.BytesIO()
    try:
        exif = picture.getexif()
        saved = picture if picture.mode in _OF_PNG else picture.convert("RGB")
        saved.save(file, "PNG", exif=exif)
    except Exception as error:  # whatever a lazy decoder raises
        raise _undecodable(error) from error
    return file.getvalue()


_OF_PNG = ("1", "L", "LA", "P", "RGB", "RGBA")


@contextmanager
def _opened(content: bytes) -> Iterator[Image]:
    """The decoded picture of a file; :class:`PictureError` for a bad one, with what was wrong."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise DataError("images-need-pillow") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its size and its tags are checked here
            image = Image.open(io.BytesIO(content), formats=_FORMATS)
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise PictureError(
                    f"has {width:,} x {height:,} pixels, more than {MOST_PIXELS:,} in all."
                )
            with image:
                image.load()
                yield image
    except PictureError:
        raise
    except Image.DecompressionBombError as error:
        raise PictureError(f"has more than {MOST_PIXELS:,} pixels.") from error
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and others
        raise _undecodable(error) from error


def _undecodable(error: Exception) -> PictureError:
    reason = re.sub(r" ?<_io\.BytesIO[^>]*>", "", str(error)).strip(" .")
    return PictureError(f"cannot be decoded ({reason or type(error).__name__}).")
