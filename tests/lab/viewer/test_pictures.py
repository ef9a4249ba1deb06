"""The images of a prompt on a page: small, from the row alone, or a sentence."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pages
import pytest
from made_pictures import picture, stored

from tandem_plugin.lab.viewer.pictures import shown_pictures

pytest.importorskip("PIL")

PNG = stored(picture())
TEXT = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{TEXT}"


def chat(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "Find x."}]}]


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 0),
        ({"prompt": "Find <image>."}, 0),
        ({"images": [], "image": None}, 0),
        ({"images": [URL, URL]}, 2),
        ({"images": [{"bytes": TEXT, "path": "a.png"}]}, 1),
        ({"image": URL}, 1),
        ({"prompt": chat({"type": "image", "image": URL})}, 1),
        ({"prompt": chat({"type": "image_url", "image_url": {"url": URL}})}, 1),
        ({"prompt": chat({"type": "image_url", "image_url": URL})}, 1),
    ],
)
def test_images_are_where_rows_have_them(fields: Any, count: int) -> None:
    shown = shown_pictures(fields)
    assert [text for _, text in shown] == [f"Image {n} of {count}" for n in range(1, count + 1)]
    assert all(source is not None and source.startswith("data:image/jpeg") for source, _ in shown)


@pytest.mark.parametrize(
    "value",
    [
        "https://nowhere.invalid/a.png",
        "/etc/passwd",
        "a.png",
        "data:image/png;base64,!",
        "data:image/svg+xml,<svg onload=alert(1)>",
        f"data:image/png;base64,{base64.b64encode(PNG[:-30]).decode()}",
        {"bytes": None, "path": "a.png"},
        {"url": URL},
        7,
        None,
        [[]],
        {"bytes": {}},
    ],
)
def test_an_image_that_is_none_is_a_sentence_in_its_place(
    value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_bytes(PNG)  # which no row of another's may show
    monkeypatch.chdir(tmp_path)
    (first, (source, text)) = shown_pictures({"images": [URL, value]})
    assert first[0] is not None
    assert source is None
    assert text.startswith("Image 2 of 2 is not shown: it ")


def test_a_prompt_of_many_images_shows_some() -> None:
    *shown, (source, text) = shown_pictures({"images": [URL] * 40})
    assert (len(shown), source, text) == (16, None, "24 more images are not shown.")


def rollout(problem: int | None, sample: int, images: Any) -> dict[str, Any]:
    return {
        **({} if problem is None else {"problem": problem}),
        "sample": sample,
        "prompt": "<image>Find x.",
        "response_ids": [0, 2],
        "authorship": [1, 1],
        "tandem_seed": 7,
        "tandem_fingerprint": "x",
        "images": images,
    }


@pytest.fixture
def view(tmp_path: Path, tokenizer_file: Path) -> Callable[..., tuple[int, Any, Any]]:
    def run(*rows: Any) -> tuple[int, Any, Any]:
        file = tmp_path / "rollouts.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return pages.view(file, tokenizer_file)

    return run


def test_a_page_has_each_problems_images_once(view: Any, tokenizer_file: Path) -> None:
    other = base64.b64encode(stored(picture(size=(9, 9)))).decode()
    images = [[URL], [f"data:image/png;base64,{other}"], ["https://nowhere.invalid/a.png"]]
    rows = [rollout(n, sample, shown) for n, shown in enumerate(images) for sample in range(3)]
    code, result, data = view(*rows)
    assert (code, result["problems"]) == (0, 3)
    assert [turns[0] for turns in data["turns"].values()] == [["", "<image>Find x."]] * 3
    shown = {n: turns[1][2] for n, turns in data["turns"].items()}
    assert [[text for _, text in pictures] for pictures in shown.values()][:2] == [
        ["Image 1 of 1"]
    ] * 2
    assert shown[0] != shown[1]
    assert shown[2][0][0] is None
    page = tokenizer_file.with_name("page.html").read_text()
    assert "img-src data:;" in page


def test_one_text_over_two_images_is_two_problems(view: Any) -> None:
    """As a dump has them, which numbers no problems."""
    other = base64.b64encode(stored(picture(size=(9, 9)))).decode()
    rows = [rollout(None, 0, [image]) for image in (URL, f"data:image/png;base64,{other}")]
    _, result, _ = view(*rows, rollout(None, 1, [URL]))
    assert (result["responses"], result["problems"]) == (3, 2)
