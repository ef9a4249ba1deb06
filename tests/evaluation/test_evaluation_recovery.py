"""Tables of drift and recovery, from counts on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_results import edit, found_tables, texts, write_counted, write_drift
from refused import refused

from tandem_plugin.lab.evaluation.drift import drift_recovery, read_counts
from tandem_plugin.lab.evaluation.results import Summary, read_summary

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
        "top 6 moved back (%)", "ρ, top 6", "ρ, 4 frequent",
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


@pytest.fixture
def counted(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Drift runs of GRPO and TRL, and the counts of junior, GRPO and TRL."""
    random = np.random.default_rng(0)
    counts = random.integers(0, 400, size=(3, 60))
    for senior, own in (("GRPO", counts[1]), ("TRL", counts[2])):
        write_counted(tmp_path, senior, own, counts[0])
    return tmp_path, counts


def test_recovery_is_that_of_the_counts(counted: tuple[Path, np.ndarray]):
    out, counts = counted
    table = found_tables(out / "GRPO", out / "TRL", "--top", 20)["recovery-drift-base"]
    expected = drift_recovery(*counts, top=20, frequent=1)
    shown = [float(row[2]) for row in texts(table)]
    np.testing.assert_allclose(shown, np.array([100, 1, 1]) * expected, atol=0.051)


def summary_of(out: Path, senior: str) -> Summary:
    return read_summary(out / senior / "drift/base/summary.json")


def test_counts_are_read_as_they_were_written(counted: tuple[Path, np.ndarray]):
    out, counts = counted
    for read, wrote in zip(read_counts(summary_of(out, "TRL")), counts[[2, 0]], strict=True):
        np.testing.assert_array_equal(read, wrote)


@pytest.mark.parametrize(
    "change",
    [
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
    counted: tuple[Path, np.ndarray], change: Callable[[dict[str, Any]], object]
):
    out, _ = counted
    edit(out / "TRL/drift/base/counts.json", change)
    with refused("TP851"):
        read_counts(summary_of(out, "TRL"))
