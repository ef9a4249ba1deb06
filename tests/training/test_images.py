"""Pictures that engine and trainer would see differently, and prompts as vLLM expects them."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin.training.images import check_pictures, collapsed, thumbnail_url

Image = pytest.importorskip("PIL.Image")


def stored(picture: Any, orientation: int | None = None, form: str = "PNG", **more: Any) -> Any:
    """A picture as it comes from a file."""
    exif, file = Image.Exif(), io.BytesIO()
    if orientation is not None:
        exif[0x0112] = orientation
    picture.save(file, form, exif=exif, **more)
    return Image.open(file)


PLAIN = Image.new("RGB", (4, 2), (1, 2, 3))


@pytest.mark.parametrize(
    "picture",
    [
        PLAIN,
        stored(PLAIN),
        stored(PLAIN, 1),
        stored(PLAIN, form="JPEG"),
        PLAIN.convert("L"),
        PLAIN.convert("P"),
        PLAIN.convert("CMYK"),
        "https://example.org/picture.png",  # for the engine to refuse
    ],
    ids=str,
)
def test_pictures_of_plain_kinds_pass(picture: Any) -> None:
    check_pictures([picture], images=True)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF"])
def test_pictures_that_only_vllm_would_turn_are_rejected(form: str) -> None:
    for orientation in (3, 6, 8):
        turned = stored(PLAIN, orientation, form)
        for picture in (turned, turned.convert("L"), turned.resize((8, 4))):
            if picture.getexif().get(0x0112):
                with refused("picture-not-upright", orientation=orientation):
                    check_pictures([PLAIN, picture], images=True)
    upright = stored(PLAIN, 1, form)
    check_pictures([upright], images=True)


@pytest.mark.parametrize(
    "picture",
    [
        PLAIN.convert("RGBA"),
        PLAIN.convert("L").convert("LA"),
        stored(PLAIN.convert("P"), transparency=0),
        stored(PLAIN.convert("L"), transparency=7),
    ],
    ids=lambda picture: picture.mode,
)
def test_transparent_pictures_are_rejected(picture: Any) -> None:
    with refused("picture-transparent", mode=picture.mode):
        check_pictures([picture], images=True)


def test_thumbnails_are_small_upright_and_opaque() -> None:
    def shown(picture: Any) -> Any:
        head, _, content = thumbnail_url(picture).partition(",")
        assert head == "data:image/jpeg;base64"
        return Image.open(io.BytesIO(base64.b64decode(content)))

    before = PLAIN.size
    assert shown(PLAIN.resize((2_000, 500))).size == (320, 80)
    assert PLAIN.size == before
    assert shown(stored(PLAIN.resize((12, 8)), 6)).size == (8, 12)
    clear = shown(Image.new("RGBA", (8, 8), (0, 0, 0, 0)))
    assert (clear.mode, clear.getpixel((4, 4))) == ("RGB", (255, 255, 255))
    for mode in ("L", "P", "1", "CMYK", "I;16"):
        assert shown(PLAIN.convert("L").convert(mode)).mode == "RGB"


def test_images_for_an_engine_of_text_are_rejected() -> None:
    check_pictures([], images=False)
    with refused("prompt-images-off"):
        check_pictures([PLAIN], images=False)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=8))
def test_one_placeholder_stands_for_each_image(parts: list[tuple[bool, int]]) -> None:
    """Images of any number of tokens, with text between them."""
    whole: list[int] = []
    single: list[int] = []
    for number, (is_image, length) in enumerate(parts):
        whole += [1, *([9] * length), 2] if is_image else [3] * length
        single += [1, 9, 2] if is_image else [3] * length
        whole.append(100 + number)
        single.append(100 + number)
    assert collapsed(whole, {9, 8}) == single
    assert collapsed(single, {9, 8}) == single
    assert collapsed(whole, ()) == whole
