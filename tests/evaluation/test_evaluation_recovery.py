"""Tables of drift and recovery, from counts on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_results import edit, found_tables, run, texts, write_counted, write_drift

from tandem_plugin.lab.evaluation import EvaluationError
from tandem_plugin.lab.evaluation.drift_counts import (
    FOLDS,
    fold_counts,
    read_counts,
    read_folds,
    write_counts,
)
from tandem_plugin.lab.evaluation.null_recovery import recovery_nulls
from tandem_plugin.lab.evaluation.results import Summary, read_summary
from tandem_plugin.lab.evaluation.token_recovery import RecoverySettings, recovered

JUNIOR = [0, 0, 1, 1, 2, 2, 3, 3]
GRPO = [2, 2, 2, 2, 3, 3, 3, 3]
TRL = [0, 1, 2, 3, 3, 3, 3, 3]
"""Moves all but token 3 back."""

TRL_2 = [2, 2, 2, 2, 2, 3, 3, 3]
"""Moves only token 3 back."""


def test_drift_table_shows_the_divergence(tmp_path: Path):
    write_drift(tmp_path, "GRPO", GRPO, JUNIOR)
    write_drift(tmp_path, "TRL", TRL, JUNIOR)
    table = found_tables(tmp_path / "GRPO", tmp_path / "TRL")["drift-base"]
    assert texts(table) == [["GRPO", "0.5000", "0.1250"], ["TRL", "0.2500", "0.1250"]]
    assert [row[1]["bold"] for row in table["rows"]] == [False, True]


def test_recovery_table_shows_what_is_moved_back(tmp_path: Path):
    """GRPO drops 0 and 1 for 2 and 3, and TRL moves all but 3 back: 3 of 6 tokens, as 4 and 5 are
    never written by anyone."""
    write_drift(tmp_path, "GRPO", GRPO, JUNIOR)
    write_drift(tmp_path, "TRL", TRL, JUNIOR)
    table = found_tables(tmp_path / "GRPO", tmp_path / "TRL")["recovery-drift-base"]
    assert texts(table)[0][:3] == ["TRL", "top 6 moved back (%)", "50.0"]
    assert [row[1]["text"] for row in table["rows"]] == [
        "top 6 moved back (%)", "ρ, top 6", "ρ, 4 frequent", "top 6 moved back, cross-fitted (%)",
        "ρ, top 6, cross-fitted",
    ]  # fmt: skip


def test_base_among_the_seniors_is_no_baseline_of_recovery(tmp_path: Path):
    for senior, wrote in {"base": JUNIOR, "GRPO": GRPO, "TRL": TRL}.items():
        write_drift(tmp_path, senior, wrote, JUNIOR)
    found = found_tables(*(tmp_path / name for name in ("base", "GRPO", "TRL")), "--top", 4)
    assert texts(found["drift-base"])[0] == ["base", "0.0000", "0.1250"]
    table = found["recovery-drift-base"]
    assert table["title"].startswith("Recovery of GRPO's drift from base")
    assert [row[0] for row in texts(table) if row[0]] == ["TRL"]
    # Of the four tokens that are written at all, all but token 3.
    assert texts(table)[0][1:3] == ["top 4 moved back (%)", "75.0"]


def test_pooled_recovery_is_the_mean_over_pairs_of_seeds(tmp_path: Path):
    for senior, wrote in {"GRPO": GRPO, "TRL": TRL, "TRL-2": TRL_2}.items():
        write_drift(tmp_path, senior, wrote, JUNIOR)
    folders = [tmp_path / name for name in ("GRPO", "TRL", "TRL-2")]
    found = found_tables(*folders, "--pool", "both=TRL,TRL-2", "--top", 4)
    assert texts(found["drift-base"])[1] == ["both", "0.5000", "0.1250"]
    assert texts(found["recovery-drift-base"])[0][2] == "50.0"  # 3 of 4, and 1 of 4
    assert texts(found["repeats"])[0][2:] == [
        "both", "0.2500", "0.7500", "0.5000", "0.3536", "0.2500",
    ]  # fmt: skip


def counted(seed: int, spread: float, tokens: int = 60) -> np.ndarray:
    """Counts in folds of a model that drifted by so much."""
    random = np.random.default_rng(seed)
    shares = np.exp(spread * random.normal(size=tokens)) / np.arange(3, tokens + 3)
    return random.multinomial(800, shares / shares.sum(), size=FOLDS)


@pytest.fixture
def folded(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Drift runs of GRPO and TRL with counts in folds; and those of junior, GRPO and TRL."""
    counts = np.stack([counted(0, 0), counted(1, 0.5), counted(2, 0.3)])
    for senior, own in (("GRPO", counts[1]), ("TRL", counts[2])):
        write_counted(tmp_path, senior, own, counts[0])
    return tmp_path, counts


def test_nulls_stand_beside_what_was_measured(folded: tuple[Path, np.ndarray]):
    out, counts = folded
    table = found_tables(out / "GRPO", out / "TRL", "--top", 20)["recovery-drift-base"]
    assert table["columns"][2:] == ["measured", "no drift", "independent drift"]
    chosen = RecoverySettings(20, 1, 0.5)
    nulls = recovery_nulls(counts, chosen)
    scales = np.array([100, 1, 1, 100, 1])
    shown = np.array([[float(text) for text in row[2:]] for row in texts(table)])
    expected = [recovered(counts, chosen), nulls.no_drift.mean, nulls.independent_drift.mean]
    np.testing.assert_allclose(shown, (scales * np.array(expected)).T, atol=0.051)
    spreads = [float(row[3]["error"]) for row in table["rows"]]
    np.testing.assert_allclose(spreads, scales * nulls.no_drift.standard_deviation, atol=0.051)
    assert "dealt out to them anew" in table["note"]
    assert "dealt out to them anew" in " ".join(run(out / "GRPO", out / "TRL").stdout.split())


def test_counts_of_an_earlier_version_are_read_and_have_no_nulls(
    folded: tuple[Path, np.ndarray],
):
    out, counts = folded
    before = found_tables(out / "GRPO", out / "TRL")["recovery-drift-base"]
    totals = {"senior": counts[2].sum(0), "junior": counts[0].sum(0)}
    old = {n: [[i, int(c)] for i, c in enumerate(found) if c] for n, found in totals.items()}
    path = out / "TRL/drift/base/counts.json"
    path.write_text(json.dumps({"vocabulary": counts.shape[2], **old}))
    table = found_tables(out / "GRPO", out / "TRL")["recovery-drift-base"]
    assert [row[2] for row in texts(table)][:3] == [row[2] for row in texts(before)][:3]
    assert {text for row in texts(table) for text in row[3:]} == {"–"}
    assert [row[2] for row in texts(table)][3:] == ["–", "–"]
    assert "run `tandem eval drift` again" in table["note"]
    assert "again" not in before["note"]


def test_counts_without_smoothing_have_no_nulls(folded: tuple[Path, np.ndarray]):
    out, counts = folded
    for senior in ("GRPO", "TRL"):
        path = out / senior / "drift/base/summary.json"
        edit(path, lambda c: c["settings"].update(smoothing=0.0))
    assert counts.sum(1).all()
    table = found_tables(out / "GRPO", out / "TRL")["recovery-drift-base"]
    assert {text for row in texts(table) for text in row[3:]} == {"–"}
    assert 0 < float(texts(table)[0][2]) < 100
    write_drift(out, "TRL", TRL, JUNIOR)
    write_drift(out, "GRPO", GRPO, JUNIOR)
    for senior in ("GRPO", "TRL"):
        path = out / senior / "drift/base/summary.json"
        edit(path, lambda c: c["settings"].update(smoothing=0.0))
    done = run(out / "GRPO", out / "TRL")
    assert done.exit_code == 1
    assert "never written need smoothing above 0" in done.stderr


def test_responses_are_in_the_same_fold_whatever_the_model():
    rows = [(0, 0, [1]), (0, 1, [2, 2]), (1, 0, [3]), (FOLDS - 1, 2, [4]), (0, 1, [0])]
    counts = fold_counts(rows, 5)
    assert counts.shape == (FOLDS, 5)
    np.testing.assert_array_equal(counts[0], [0, 1, 0, 0, 0])
    np.testing.assert_array_equal(counts[1], [1, 0, 2, 1, 1])
    assert not counts[2:].any()


def summary_of(out: Path, senior: str) -> Summary:
    return read_summary(out / senior / "drift/base/summary.json")


def test_counts_are_read_as_they_were_written(folded: tuple[Path, np.ndarray]):
    out, counts = folded
    for read, wrote in zip(read_folds(summary_of(out, "TRL")), counts[[2, 0]], strict=True):
        np.testing.assert_array_equal(read, wrote)
    np.testing.assert_array_equal(read_counts(summary_of(out, "TRL"))[0], counts[2].sum(0))


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(folds=FOLDS + 1),
        lambda c: c.update(folds=True),
        lambda c: c.update(folds=10**9),
        lambda c: c.update(vocabulary=3),
        lambda c: c["senior"][0].pop(),
        lambda c: c["senior"][0].__setitem__(1, -1),
        lambda c: c["senior"][0].__setitem__(1, 1.5),
        lambda c: c["senior"][0].__setitem__(1, 2**53),
        lambda c: c["junior"].append(7),
        lambda c: c.pop("junior"),
    ],
)
def test_spoiled_counts_are_refused(
    folded: tuple[Path, np.ndarray], change: Callable[[dict[str, Any]], object]
):
    out, _ = folded
    edit(out / "TRL/drift/base/counts.json", change)
    with pytest.raises(EvaluationError, match=r"counts .* cannot be read"):
        read_folds(summary_of(out, "TRL"))


def test_models_of_other_vocabularies_are_refused(folded: tuple[Path, np.ndarray]):
    out, counts = folded
    write_counts(out / "TRL/drift/base", counts[2][:, :50], counts[0][:, :50])
    done = run(out / "GRPO", out / "TRL")
    assert done.exit_code == 1
    assert "the same tokenizer" in done.stderr
