"""Pictures of rows: what both models see alike, and a sentence for every file that is not."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from made_pictures import picture, stored

from tandem_plugin.lab.data.pictures import MOST_PIXELS, PictureError, read_picture, thumbnail

pillow = pytest.importorskip("PIL.Image")


def turned() -> bytes:
    exif = pillow.Exif()
    exif[0x0112] = 6
    return stored(picture(), "JPEG", exif=exif)


def animated(kind: str) -> bytes:
    frames = [picture(), picture().rotate(90, expand=True).resize((12, 8))]
    return stored(frames[0], kind, save_all=True, append_images=frames[1:])


def sized(width: int, height: int) -> bytes:
    """A PNG that says that it has this size; all of its pixels would be one byte's."""
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", size), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(content)) + name + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts
    ]  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


WHOLE = {
    "PNG": stored(picture()),
    "JPEG": stored(picture(), "JPEG"),
    "WebP": stored(picture(), "WEBP"),
    "greyscale": stored(picture("L")),
    "palette": stored(picture("P"), "GIF"),
    "one bit": stored(picture("1")),
    "CMYK": stored(picture("CMYK"), "JPEG"),
    "sixteen bits": stored(picture("I;16")),
}

BAD = {
    "empty": (b"", "cannot be decoded"),
    "no picture": (b"no picture", "cannot be decoded"),
    "truncated PNG": (WHOLE["PNG"][:-30], "cannot be decoded"),
    "truncated JPEG": (WHOLE["JPEG"][:-30], "cannot be decoded"),
    "a bomb": (sized(60_000, 60_000), "more than 50,000,000 pixels"),
    "huge": (sized(MOST_PIXELS // 1_000 + 1, 1_000), "pixels, more than"),
    "without its pixels": (sized(100, 100), "cannot be decoded"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "cannot be decoded"),
    "animated GIF": (animated("GIF"), "2 frames"),
    "animated PNG": (animated("PNG"), "2 frames"),
    "animated WebP": (animated("WEBP"), "2 frames"),
    "turned": (turned(), "orientation"),
    "transparent": (stored(picture("RGBA")), "transparen"),
    "a transparent palette": (stored(picture("P"), transparency=3), "transparen"),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_pictures_are_read_as_processors_convert_them(kind: str) -> None:
    read = read_picture(WHOLE[kind])
    assert read.content == WHOLE[kind]
    shown = pillow.open(io.BytesIO(WHOLE[kind])).convert("RGB")
    assert read.image().tobytes() == shown.tobytes()


def test_equal_pixels_have_one_digest_whatever_the_file() -> None:
    grey = picture("L")
    digests = {
        read_picture(content).digest
        for content in (stored(grey), stored(grey, "BMP"), stored(grey.convert("RGB"), "TIFF"))
    }
    assert len(digests) == 1
    wide = pillow.new("RGB", (8, 2))
    assert read_picture(stored(wide)).digest != read_picture(stored(wide.resize((4, 4)))).digest


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_picture_is_a_sentence(kind: str) -> None:
    content, expected = BAD[kind]
    with pytest.raises(PictureError, match=expected) as caught:
        read_picture(content)
    assert str(caught.value).rstrip().endswith(".")
    assert "BytesIO" not in str(caught.value)


def test_every_form_of_a_row_is_one_picture(tmp_path: Path) -> None:
    content = WHOLE["PNG"]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.png").write_bytes(content)
    text = base64.b64encode(content).decode()
    forms = [
        content,
        {"bytes": content, "path": None},
        {"bytes": content, "path": "elsewhere.png"},
        {"bytes": text},
        {"bytes": None, "path": "folder/a.png"},
        "folder/a.png",
        str(tmp_path / "folder" / "a.png"),
        f"data:image/png;base64,{text}",
        pillow.open(io.BytesIO(content)),
    ]
    assert len({read_picture(form, tmp_path).digest for form in forms}) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("https://nowhere.invalid/a.png", "nothing is fetched"),
        ("s3://bucket/a.png", "nothing is fetched"),
        ("file:///etc/passwd", "nothing is fetched"),
        ("data:image/svg+xml,<svg/>", "nothing is fetched"),
        ("data:image/png;base64,!!", "not base64"),
        ({"bytes": "!!"}, "not base64"),
        ("missing.png", "cannot be read from 'missing.png'"),
        (".", "cannot be read"),
        ("\0", "cannot be read"),
        (7, "is 7, neither"),
        ({}, "is None, neither"),
        ([b"x"], "neither"),
    ],
)
def test_what_is_no_picture_is_said(value: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(PictureError, match=expected):
        read_picture(value, tmp_path)


def test_rows_without_a_folder_read_no_other_file(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(WHOLE["PNG"])
    for read in (read_picture, thumbnail):
        with pytest.raises(PictureError, match="not read from here"):
            read(str(file))


def test_a_data_sets_decoded_picture_keeps_its_orientation() -> None:
    """A library that has decoded the file must not hide what trainer and engine see otherwise."""
    with pytest.raises(PictureError, match="orientation"):
        read_picture(pillow.open(io.BytesIO(turned())))
    with pytest.raises(PictureError, match="cannot be decoded"):
        read_picture(pillow.open(io.BytesIO(WHOLE["PNG"][:-30])))


def small(value: Any) -> Any:
    url = thumbnail(value)
    head, _, content = url.partition(",")
    assert head == "data:image/jpeg;base64"
    return pillow.open(io.BytesIO(base64.b64decode(content)))


@pytest.mark.parametrize("kind", [*WHOLE, "animated GIF", "turned", "transparent"])
def test_thumbnails_of_every_kind_are_small_pictures(kind: str) -> None:
    content = WHOLE[kind] if kind in WHOLE else BAD[kind][0]
    assert small(content).size == ((8, 12) if kind == "turned" else (12, 8))
    assert small(content).mode == "RGB"


def test_a_thumbnail_has_a_limited_size_and_a_white_ground() -> None:
    large = small(stored(picture(size=(2_000, 500)), "JPEG"))
    assert large.size == (320, 80)
    assert len(thumbnail(stored(pillow.effect_noise((2_000, 2_000), 100)))) < 200_000
    clear = small(stored(pillow.new("RGBA", (4, 4), (0, 0, 0, 0))))
    assert clear.getpixel((1, 1)) == (255, 255, 255)


@pytest.mark.parametrize("kind", [kind for kind, (_, why) in BAD.items() if "deco" in why])
def test_no_bad_file_ends_a_page(kind: str) -> None:
    with pytest.raises(PictureError):
        thumbnail(BAD[kind][0])
