"""The search for the smallest advantage of the second language: its GRPO, and its table."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "demo"))
pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("psutil", reason="psutil is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import advantage
import pair
import run
import torch
from evaluation import GRPO, RESULTS, Score, markdown
from measures import TAUGHT


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair, "SENIOR", replace(pair.SENIOR, steps=20, batch_size=40))
    monkeypatch.setattr(run, "STEPS", {GRPO: 2})
    monkeypatch.setattr(run, "SIZES", replace(run.SIZES, prompts=2, group=2, warmup=1))
    monkeypatch.setattr(run, "EVALUATION_PROBLEMS", 3)


def test_search_measures_each_share_and_seed_once(
    small: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(advantage, "SPANISH", (0.2,))
    monkeypatch.setattr(advantage, "SEEDS", (5, 6))
    monkeypatch.setattr(sys, "argv", ["advantage.py", "--out", str(tmp_path)])
    assert advantage.main() == 0
    rows = advantage.read_rows(tmp_path / "advantage.jsonl")
    assert [(share, row.seed, row.trained, row.steps) for share, row in rows] == [
        (0.2, seed, *trained) for seed in (5, 6) for trained in ((TAUGHT, 0), (GRPO, 2))
    ]
    assert {(len(row.solved), row.samples) for _, row in rows} == {(3, 6)}
    capsys.readouterr()
    assert advantage.main() == 0
    assert "Taught" not in capsys.readouterr().out
    assert advantage.read_rows(tmp_path / "advantage.jsonl") == rows


def test_padding_changes_no_log_probability(small: None) -> None:
    lesson = pair.lessons(5)["senior"]
    numbers, _ = pair.split_numbers(run.HELD_OUT, run.NUMBERS_SEED)
    tokenizer = pair.make_tokenizer(pair.texts(lesson, {}, numbers))
    torch.manual_seed(0)
    senior = advantage.build_model(lesson, tokenizer)
    stories = [replace(story, template=place % 3) for place, story in
               enumerate(pair.draw_stories(6, 1, numbers))]  # fmt: skip
    ids, written = advantage.responses(senior, tokenizer, stories)
    assert len({int((row != tokenizer.pad_token_id).sum()) for row in ids}) > 1
    padded = advantage.log_probs(senior, ids, written, tokenizer)
    for row, kept, found in zip(ids, written, padded, strict=True):
        start = int((row[: -written.shape[1]] == tokenizer.pad_token_id).sum())
        alone = row[start : len(row) - int((~kept).sum())]
        logits = senior(input_ids=alone[None]).logits[0].log_softmax(-1)
        expected = logits[:-1].gather(-1, alone[1:, None]).squeeze(-1)[-int(kept.sum()) :]
        torch.testing.assert_close(found[kept], expected, atol=1e-5, rtol=1e-5)


def test_english_is_left_where_it_falls_by_more_than_two_errors_in_a_seed() -> None:
    def score(trained: str, seed: int, solved: tuple[int, ...]) -> Score:
        return Score(trained, 0, seed, "English", "T = 1", 6, solved)

    taught = (3, 4, 3, 4)
    rows = [
        *((0.3, score(name, 7, taught)) for name in (TAUGHT, GRPO)),
        *((0.2, score(TAUGHT, seed, taught)) for seed in (7, 8)),
        (0.2, score(GRPO, 7, (0, 1, 1, 0))),
        (0.2, score(GRPO, 8, (2, 4, 3, 4))),
        *((0.3, score(name, 8, taught)) for name in (TAUGHT, GRPO)),
    ]
    heading, equal, demo = advantage.table(rows)
    assert heading == ["wrong in Spanish, %", "seed 7", "seed 8", "leaves English"]
    assert (equal[0], equal[-1]) == ("30.0", "0 of 2")
    assert (demo[0], demo[-1]) == ("20.0", "1 of 2")
    assert demo[1].startswith("58.3 → 8.3 (-50.0 ± ")


def test_readme_has_the_table_of_the_rows() -> None:
    rows = advantage.read_rows(RESULTS / "advantage.jsonl")
    page = (Path(run.__file__).parent / "README.md").read_text(encoding="utf-8")
    for line in markdown(advantage.table(rows)):
        assert f"  {line}\n" in page, line
