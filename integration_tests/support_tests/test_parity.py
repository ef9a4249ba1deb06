"""The rule that a GPU's greedy tokens must follow, and how it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.parity import Judge
from support.reference import Written, always, every_token
from support.requests import PROMPTS


@pytest.fixture(scope="module")
def judge(checkpoints: dict[str, Path]) -> Judge:
    return Judge(checkpoints["senior"], checkpoints["other"], "bfloat16")


@pytest.fixture(scope="module")
def written(judge: Judge, tokenizer: Any) -> list[Written]:
    prompts = [tokenizer(prompt).input_ids for prompt in PROMPTS]
    return [(ids, judge.greedy(ids, 24, every_token(7, 0.5)), seven) for ids in prompts]


def seven() -> Any:
    return every_token(7, 0.5)


def test_tokens_of_their_authors_hold(judge: Judge, written: list[Written]) -> None:
    found = judge.verdict(written)
    assert found.passed
    assert found.likeliest == found.tokens == 72
    judge.check(written)


def test_tokens_of_another_author_do_not(judge: Judge, written: list[Written]) -> None:
    swapped = [(prompt, ids, lambda: every_token(8, 0.5)) for prompt, ids, _ in written]
    assert judge.verdict(swapped).wrong == (0, 1, 2)
    with pytest.raises(AssertionError, match="Not allowed in 3"):
        judge.check(swapped)


def test_one_unlikely_token_does_not(judge: Judge, written: list[Written]) -> None:
    prompt, ids, authors = written[1]
    worst = int(judge.logits(next(seven()), prompt).argmin())
    changed = [written[0], (prompt, [worst, *ids[1:]], authors)]
    assert judge.verdict(changed).wrong == (1,)


def test_models_that_cannot_be_told_apart_show_nothing(
    checkpoints: dict[str, Path], tokenizer: Any
) -> None:
    judge = Judge(checkpoints["senior"], checkpoints["senior"], "float32")
    ids = tokenizer(PROMPTS[0]).input_ids
    found = judge.verdict([(ids, judge.greedy(ids, 12, always(True)), lambda: always(True))])
    assert not found.wrong
    assert not found.passed
    assert "too few to tell" in found.sentence()
