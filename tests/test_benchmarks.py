"""How the benchmarks measure, keep and show; without measuring anything."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_rounds_warm_up_and_take_turns_in_both_directions(module: Any) -> None:
    called: list[str] = []

    def case(name: str) -> float:
        called.append(name)
        return float(len(called))

    samples = module("rounds").run_rounds({"a": lambda: case("a"), "b": lambda: case("b")}, 2)
    assert called == ["a", "b", "a", "b", "b", "a"]
    assert samples["a"].values == (3.0, 6.0)
    assert samples["b"].values == (4.0, 5.0)


def test_ratio_is_taken_round_by_round(module: Any) -> None:
    rounds = module("rounds")
    ratio = rounds.ratio(rounds.Sample((1.0, 4.0, 9.0)), rounds.Sample((2.0, 4.0, 3.0)))
    assert ratio.as_json() == {"median": 1.0, "low": 0.5, "high": 3.0, "rounds": [0.5, 1.0, 3.0]}


def test_results_are_whole_after_every_case_and_go_on_where_they_stopped(
    module: Any, tmp_path: Path
) -> None:
    results = module("results").Results
    header = {"benchmark": "x", "machine": {"cores": "2"}}
    first = results(tmp_path, "x", header)
    first.add("a", {"median": 1.5})
    assert json.loads((tmp_path / "x.json").read_text())["cases"]["a"]["median"] == 1.5
    again = results(tmp_path, "x", header)
    assert "a" in again
    assert "b" not in again
    again.add("b", {"median": 2.5})
    assert set(json.loads((tmp_path / "x.json").read_text())["cases"]) == {"a", "b"}
    elsewhere = results(tmp_path, "x", {**header, "machine": {"cores": "64"}})
    assert "a" not in elsewhere


def test_page_changes_between_its_markers_alone(module: Any, tmp_path: Path) -> None:
    page = module("table")
    file = tmp_path / "performance.md"
    begin, end = page.markers("here")
    there = "{}\nstays\n{}".format(*page.markers("there"))
    file.write_text(f"before\n{begin}\nold\n{end}\nafter\n{there}\n")
    for content in ("first", "second"):
        page.write_page(file, "here", content)
        written = f"before\n{begin}\n\n{content}\n{end}\nafter\n{there}\n"
        assert file.read_text() == written


def test_page_without_markers_is_refused(module: Any, tmp_path: Path) -> None:
    page = module("table")
    file = tmp_path / "performance.md"
    file.write_text("no place here\n")
    with pytest.raises(page.PageError, match="has no place for the tables"):
        page.write_page(file, "here", "content")
    assert file.read_text() == "no place here\n"


@pytest.mark.parametrize("quick", [None, True])
def test_results_that_are_missing_or_quick_are_refused_for_the_page(
    module: Any, tmp_path: Path, quick: bool | None
) -> None:
    table = module("table")
    if quick:
        (tmp_path / "x.json").write_text(json.dumps({"quick": True}))
    with pytest.raises(table.PageError, match="no whole results of: x"):
        table.read_results(tmp_path, ["x"], whole=True)


def test_table_shows_command_spread_and_load(module: Any) -> None:
    table = module("table")
    sample = {"median": 1234.5, "low": 12.34, "high": 1.234, "load": 2.04}
    content = {"command": "python benchmarks/x.py", "cases": {"a": sample}}
    shown = table.Table("X", ["n", "time"], [["1", table.spread(sample)]], "seconds")
    text = shown.markdown(content)
    assert "### X" in text
    assert "`python benchmarks/x.py`. Seconds." in text
    assert "2.0 to 2.0" in text
    assert "| 1 | 1,234 (12.3 to 1.23) |" in text


def test_performance_page_has_a_place_for_the_tables(module: Any) -> None:
    page = module("table")
    text = (FOLDER.parent / "docs" / "performance.md").read_text(encoding="utf-8")
    for place in ("benchmarks", "speculative", "gpu"):
        assert [text.count(marker) for marker in page.markers(place)] == [1, 1]
