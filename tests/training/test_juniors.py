"""A pool of juniors: which one writes, and what the log says of each."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin.training.juniors import junior_of_prompt, take_junior
from tandem_plugin.training.metrics import batch_metrics, labels, metrics_of_juniors
from tandem_plugin.training.rows import Row

NAMES = st.lists(st.text("ab-1/", min_size=1, max_size=6), min_size=1, max_size=6, unique=True)


@given(NAMES)
def test_metrics_call_every_junior_something_else(juniors: list[str]) -> None:
    found = labels(juniors)
    assert list(found) == juniors
    assert len(set(found.values())) == len(juniors)
    assert list(labels(["Qwen/Qwen3-1.7B", "models/base/"]).values()) == ["Qwen3-1.7B", "base"]
    assert list(labels(["runs/a/hf", "runs/b/hf"]).values()) == ["hf-1", "hf-2"]


@given(NAMES, st.integers(0, 10**6), st.integers(1, 40))
def test_prompts_of_a_step_take_the_juniors_in_turns(
    juniors: list[str], step: int, prompts: int
) -> None:
    counts = Counter(junior_of_prompt(juniors, step, place) for place in range(prompts))
    assert len(counts) == min(prompts, len(juniors))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_no_junior_is_named_where_the_run_names_none() -> None:
    assert junior_of_prompt((), 3, 1) is None


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
    for label, own in (("a", [rows[0], rows[2]]), ("b", rows[1:2]), ("c", [])):
        ours = {k: v for k, v in found.items() if k.startswith(f"tandem/juniors/{label}/")}
        expected = {"tandem/responses": len(own), **batch_metrics(own)}
        assert ours == {
            f"tandem/juniors/{label}/{name.removeprefix('tandem/')}": value
            for name, value in expected.items()
        }
    assert found["tandem/juniors/a/grading/correct"] == 0.5
    assert metrics_of_juniors(rows, ("m/a",)) == {}


def test_wrong_settings_of_an_engine_are_refused() -> None:
    with refused("TP105"):
        take_junior({"additional_config": {"tandem": {"junior": ["a", "a"]}}}, 0)
