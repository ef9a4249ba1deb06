"""The verdict of a report: what it says follows from the test that stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_results import write_alone, write_handoff, write_legibility

from tandem_plugin.lab.evaluation.checkpoint import name_of, step_of
from tandem_plugin.lab.evaluation.comparison import Comparison, compare
from tandem_plugin.lab.evaluation.significance import paired_test
from tandem_plugin.lab.evaluation.verdict import verdicts

WEAK, STRONG = [0, 1, 1, 2, 0, 1, 2, 1], [2, 3, 2, 4, 2, 2, 4, 3]


def compared(out: Path, grpo: list[int], trl: list[int]) -> Comparison:
    for senior, right in (("GRPO", grpo), ("TRL", trl)):
        write_handoff(out, senior, "base", right)
        write_alone(out, senior, right)
        write_legibility(out, senior, "base", [0.1 + 0.05 * n for n in right])
    return compare([out / "GRPO", out / "TRL"], resamples=20)


def test_a_better_team_is_said_with_its_test(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    alone, team, surprise, overlap = verdicts(compared(tmp_path, WEAK, STRONG), k=1)
    assert (alone.outcome, team.outcome) == ("better", "better")
    assert alone.sentence == "Alone, TRL solves more than GRPO."
    assert team.sentence == "As a team (step base), TRL solves more than GRPO."
    test = paired_test([n / 4 for n in STRONG], [n / 4 for n in WEAK], "greater")
    assert f"difference +{100 * test.difference:.2f}, t = +{test.t:.2f}" in team.evidence
    assert "paired one-sided t-test over 8 problems" in team.evidence
    # More nats are worse, and so is less overlap.
    assert (surprise.outcome, overlap.outcome) == ("worse", "worse")
    assert surprise.sentence == "By cross-entropy, TRL is less legible to base than GRPO."


def test_what_is_worse_is_said_too(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    alone, team, surprise, _ = verdicts(compared(tmp_path, STRONG, WEAK), k=1)
    assert (alone.outcome, team.outcome, surprise.outcome) == ("worse", "worse", "better")
    assert team.sentence == "As a team (step base), TRL solves less than GRPO."


@pytest.mark.parametrize("trl", [WEAK, [1, 0, 2, 1, 1, 0, 2, 1]])
def test_a_difference_within_noise_is_not_shown(tmp_path: Path, trl: list[int]) -> None:
    pytest.importorskip("scipy")
    for one in verdicts(compared(tmp_path, WEAK, trl), k=1):
        assert one.outcome == "not shown"
        assert "is shown" in one.sentence
        assert ("nothing differs" in one.evidence) is (trl == WEAK)


def test_one_problem_is_not_tested(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    assert {one.outcome for one in verdicts(compared(tmp_path, [1], [4]), k=1)} == {"no test"}


@pytest.mark.parametrize(
    ("path", "name", "step"),
    [
        ("runs/trl/global_step_100/actor/huggingface", "trl-step-100", 100),
        ("runs/grpo/checkpoints/global_step20_hf", "grpo-step-20", 20),
        ("out/kl-reg/checkpoint-250", "kl-reg-step-250", 250),
        (f"hub/models--Qwen--Qwen3-4B/snapshots/{'0a1b' * 10}", "Qwen3-4B", None),
        ("Qwen/Qwen3-4B", "Qwen3-4B", None),
        ("runs/senior", "senior", None),
        ("model", "model", None),
    ],
)
def test_models_are_called_by_method_and_step(path: str, name: str, step: int | None) -> None:
    assert (name_of(path), step_of(path)) == (name, step)
