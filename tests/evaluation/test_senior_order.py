"""The noted order of seniors: kept as it was given, and never written through a broken link."""

from __future__ import annotations

from pathlib import Path

from refused import refused

from tandem_plugin.lab.evaluation.comparison import note_seniors, noted_seniors, order_file


def test_seniors_are_noted_once_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    assert noted_seniors(tmp_path) == []
    note_seniors(tmp_path, ["base", "TRL"])
    note_seniors(tmp_path, ["TRL", "GRPO"])
    assert noted_seniors(tmp_path) == ["base", "TRL", "GRPO"]


def test_an_order_that_is_a_link_to_nowhere_is_refused_and_nothing_written(tmp_path: Path) -> None:
    order_file(tmp_path).symlink_to("nowhere")
    with refused("TP901"):
        note_seniors(tmp_path, ["base"])
    assert not (tmp_path / "nowhere").exists()
