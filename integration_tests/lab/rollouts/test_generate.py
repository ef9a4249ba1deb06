"""Problems with images, as ``tandem rollout`` and ``tandem eval`` let a pair answer them."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import TANDEM, run
from support.drafting import has_drafting
from support.images import ImageReference, make_seeing, picture
from support.vision_packages import offer_torchvision

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not has_drafting(), reason="images need vLLM 0.29"),
    pytest.mark.skipif(not offer_torchvision(), reason="no torchvision: constraints/install.py"),
]
ENGINE = [
    part
    for setting in (
        "dtype=float32",
        "enforce_eager=true",
        "max_num_seqs=4",
        "kv_cache_memory_bytes=100000000",
    )
    for part in ("--engine", setting)
]
LENGTH = ("--engine", "max_model_len=256")
ROWS = [
    ("What is in <image>?", 1),
    ("<image> or <image>, which is darker?", 2),
    ("Tom has 3 apples.", 0),
    ("Find x.", 1),  # its image stands before it
]
TEXTS = [text if "<image>" in text or not count else "<image>" + text for text, count in ROWS]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        name: make_seeing(folder / name, "qwen2.5-vl", seed=seed)
        for seed, name in enumerate(("senior", "junior"))
    }


def pictures(row: int) -> list[Any]:
    return [picture(10 * row + n) for n in range(ROWS[row][1])]


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("problems")
    with (folder / "seen.jsonl").open("w") as file:
        for row, (text, count) in enumerate(ROWS):
            names = [f"{row}-{n}.png" for n in range(count)]
            for name, image in zip(names, pictures(row), strict=True):
                image.save(folder / name)
            shown = {"images": names} if names else {}
            file.write(json.dumps({"problem": text, "answer": "3", **shown}) + "\n")
    return folder / "seen.jsonl"


@pytest.fixture(scope="module")
def reference(models: dict[str, Path]) -> ImageReference:
    return ImageReference(models["senior"], models["junior"])


def wrong(
    reference: ImageReference, asked: str, row: dict[str, Any], authors: Sequence[int]
) -> int:
    """Tokens that are not their author's likeliest, by Hugging Face, over the row's own images."""
    parts = [
        {"type": "image"} if piece == "<image>" else {"type": "text", "text": piece}
        for piece in re.split("(<image>)", asked)
        if piece
    ]
    chat = [{"role": "user", "content": parts}]
    tokenizer = reference.processor.tokenizer
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    (number,) = (n for n, text in enumerate(TEXTS) if asked.startswith(text))
    seen, response = pictures(number), row["response_ids"]
    if "prompt_ids" in row:
        assert row["prompt_ids"] == reference.expanded(prompt, seen)
    likeliest = {
        author: reference.logits(author, prompt, seen, response).argmax(-1).tolist()
        for author in (True, False)
    }
    return sum(
        likeliest[bool(author)][t] != token
        for t, (author, token) in enumerate(zip(authors, response, strict=True))
    )


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_rollouts_see_the_images_of_their_rows(
    models: dict[str, Path], problems: Path, reference: ImageReference, tmp_path: Path
) -> None:
    out = tmp_path / "rollouts.jsonl"
    command = [
        *(*TANDEM, "rollout", "--out", str(out), "--problems", str(problems), "--n", "2"),
        *("--senior", str(models["senior"]), "--junior", str(models["junior"])),
        *(
            "--schedule",
            "token",
            "--max-tokens",
            "12",
            "--temperature",
            "0",
            "--json",
            *LENGTH,
            *ENGINE,
        ),
    ]
    assert json.loads(run(command).stdout)["written"] == 8
    rows = read(out)
    assert not sum(wrong(reference, row["prompt"], row, row["authorship"]) for row in rows)
    assert {author for row in rows for author in row["authorship"]} == {0, 1}
    for row in rows:
        shown = row.get("images", [])
        assert len(shown) == ROWS[TEXTS.index(row["prompt"])][1]
        for url in shown:
            assert base64.b64decode(url.partition(",")[2]).startswith(b"\xff\xd8")
    # Other pixels at the same paths are other problems.
    name = problems.parent / "0-0.png"
    before = name.read_bytes()
    picture(77).save(name)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    name.write_bytes(before)
    assert "rollout-settings-changed" in done.stdout
    assert json.loads(run(command).stdout)["found"] == 8


def test_a_too_long_prompt_and_a_text_model_are_sentences(
    models: dict[str, Path], problems: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    def failed(senior: Path, *more: str) -> str:
        command = [
            *(*TANDEM, "rollout", "--out", str(tmp_path / "none.jsonl"), "--problems"),
            *(str(problems), "--senior", str(senior), *ENGINE, *more),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 1
        return done.stderr

    said = failed(models["senior"], "--engine", "max_model_len=16")
    assert "[image-prompt-rejected]" in said
    assert "Traceback" not in said
    assert "[image-family-uncompared]" in failed(checkpoints["senior"], *LENGTH)


def test_evaluation_sees_the_images_of_its_benchmark(
    models: dict[str, Path], problems: Path, reference: ImageReference, tmp_path: Path
) -> None:
    out = tmp_path / "results"

    def evaluated(part: str, *more: str) -> list[str]:
        return [
            *(*TANDEM, "eval", part, "--out", str(out), "--senior", f"s={models['senior']}"),
            *("--benchmark", f"seen={problems}", "--max-tokens", "12", "--temperature", "0"),
            *(*more, *LENGTH, *ENGINE),
        ]

    team = ("--junior", f"j={models['junior']}", "--schedule")
    run(evaluated("solo", "--samples", "1"))
    run(evaluated("handoff", *team, "token", "--samples", "2"))
    files = {kind: [*(out / "s" / kind).rglob("seen.jsonl")] for kind in ("solo", "handoff")}
    rows = {kind: read(*found) for kind, found in files.items()}
    assert {kind: len(part) for kind, part in rows.items()} == {"solo": 4, "handoff": 8}
    for row in (*rows["solo"], *rows["handoff"]):
        text = row["prompt"][-1]["content"]
        authors = row.get("authorship", [1] * len(row["response_ids"]))
        assert not wrong(reference, text, row, authors)
        assert len(row.get("images", [])) == text.count("<image>")
    for part, more in (("handoff", (*team, "step-text")), ("all", (*team, "step"))):
        done = subprocess.run(evaluated(part, *more), capture_output=True, text=True, timeout=300)
        code = "text-handoff" if part == "handoff" else "legibility"
        assert f"[{code}-with-images]" in done.stderr
