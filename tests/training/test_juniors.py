"""A pool of juniors: which one writes, and what the log says of each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin.training.engine_metrics import MeasuringLog
from tandem_plugin.training.juniors import (
    OfJuniors,
    junior_of_prompt,
    labels,
    metrics_of_juniors,
    take_junior,
)
from tandem_plugin.training.rows import Row

NAMES = st.lists(st.text("ab-1/", min_size=1, max_size=6), min_size=1, max_size=6, unique=True)


@given(NAMES)
def test_metrics_call_every_junior_something_else(juniors: list[str]) -> None:
    found = labels(juniors)
    assert list(found) == juniors
    assert len(set(found.values())) == len(juniors)


def test_metrics_call_a_junior_by_the_last_part_of_its_path() -> None:
    assert labels(["Qwen/Qwen3-1.7B", "models/base/"]) == {
        "Qwen/Qwen3-1.7B": "Qwen3-1.7B",
        "models/base/": "base",
    }
    assert labels(["runs/a/hf", "runs/b/hf"]) == {"runs/a/hf": "hf-1", "runs/b/hf": "hf-2"}


@given(NAMES, st.integers(0, 10**6), st.integers(1, 40))
def test_prompts_of_a_step_take_the_juniors_in_turns(
    juniors: list[str], step: int, prompts: int
) -> None:
    counts = Counter(junior_of_prompt(juniors, step, place, "said") for place in range(prompts))
    assert len(counts) == min(prompts, len(juniors))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_no_junior_is_named_where_the_run_names_none() -> None:
    assert junior_of_prompt((), 3, 1, "said") is None
    assert junior_of_prompt(("a",), 3, None, "said") == "a"


def row(junior: str, senior: list[int], **graded: float) -> Row:
    bits = np.array(senior, dtype=bool)
    return Row(
        "a row", "a prompt", np.arange(len(bits)), bits, bits,
        segments=[(7, 0, len(bits))], junior=junior, graded=graded,
    )  # fmt: skip


def test_metrics_of_a_junior_are_those_of_its_rows_alone() -> None:
    rows = [row("m/a", [1, 1, 0, 0], outcome_correct=1.0), row("m/b", [1, 0, 0, 0])]
    rows.append(row("m/a", [1, 1], outcome_correct=0.0))
    found = metrics_of_juniors(rows, ("m/a", "m/b", "m/c"))
    assert found == {
        "tandem/juniors/a/responses": 2,
        "tandem/juniors/a/senior_share": 4 / 6,
        "tandem/juniors/a/spans_per_response": 1.5,
        "tandem/juniors/a/handoffs_per_response": 0.5,
        "tandem/juniors/a/responses_without_senior": 0,
        "tandem/juniors/a/prompts_without_senior": 0,
        "tandem/juniors/a/tokens_of_unknown_author": 0,
        "tandem/juniors/a/grading/correct": 0.5,
        "tandem/juniors/b/responses": 1,
        "tandem/juniors/b/senior_share": 1 / 4,
        "tandem/juniors/b/spans_per_response": 2,
        "tandem/juniors/b/handoffs_per_response": 1,
        "tandem/juniors/b/responses_without_senior": 0,
        "tandem/juniors/b/prompts_without_senior": 0,
        "tandem/juniors/b/tokens_of_unknown_author": 0,
        "tandem/juniors/c/responses": 0,
    }
    assert metrics_of_juniors(rows, ("m/a",)) == {}


def sums(junior: str, tokens: float, entropy: float) -> dict[str, Any]:
    return {
        "senior_tokens": tokens,
        "junior_cross_entropy": entropy,
        "overlap": tokens / 2,
        "junior_tokens": 0.0,
        "senior_cross_entropy": 0.0,
        "junior": junior,
    }


def test_measures_are_those_of_all_engines_and_of_each_juniors() -> None:
    log = OfJuniors(("a", "b"), MeasuringLog)
    engines = [sums("a", 2, 2), sums("b", 4, 16), sums("a", 2, 6)]
    found = log.step(engines)
    assert found["tandem/junior_cross_entropy"] == 24 / 8
    assert found["tandem/juniors/a/junior_cross_entropy"] == 8 / 4
    assert found["tandem/juniors/b/junior_cross_entropy"] == 16 / 4
    engines[2] = sums("a", 3, 16)
    assert log.step(engines) == {
        "tandem/junior_cross_entropy": 10,
        "tandem/overlap": 0.5,
        "tandem/juniors/a/junior_cross_entropy": 10,
        "tandem/juniors/a/overlap": 0.5,
    }


def test_one_junior_has_no_metrics_of_its_own() -> None:
    found = OfJuniors(("a",), MeasuringLog).step([sums("a", 2, 2)])
    assert found == {"tandem/junior_cross_entropy": 1, "tandem/overlap": 0.5}


def test_wrong_settings_of_an_engine_are_refused() -> None:
    with refused("TP105"):
        take_junior({"additional_config": {"tandem": {"junior": ["a", "a"]}}}, 0)
