"""The table of drafts that follows from measured speeds, whatever these are."""

from __future__ import annotations

import itertools
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.config import TandemConfig
from tandem_plugin.lab.commands import drafts
from tandem_plugin.lab.commands.drafts import table_of
from tandem_plugin.lab.rollouts import engine as rollouts_engine

SPEEDS = st.dictionaries(st.integers(1, 12), st.integers(1, 5), max_size=4)
MEASURED = st.dictionaries(
    st.integers(1, 300),
    st.builds(lambda lockstep, others: {**others, 0: lockstep}, st.integers(1, 5), SPEEDS),
    min_size=1,
    max_size=6,
)


def at(table: dict[int, int], size: int) -> int:
    """What the engine drafts at a batch size."""
    return table[max(first for first in table if first <= size)]


@given(MEASURED, st.integers(0, 50))
def test_no_measured_batch_size_is_slower_than_lockstep_and_none_beyond_drafts(
    speeds: dict[int, dict[int, float]], more: int
) -> None:
    sizes = sorted(speeds)
    table = table_of(speeds, sizes[-1] + more)
    for size, found in speeds.items():
        number = at(table, size)
        assert number == min(n for n in found if found[n] == max(found.values()))
        assert number == 0 or found[number] > found[0]
    for size in range(1, sizes[-1] + more + 1):
        below = [at(table, one) for one in sizes if one <= size][-1:]
        above = [at(table, one) for one in sizes if one >= size][:1]
        assert at(table, size) == (min(below + above) if above else 0)
    assert list(table) == sorted(table)
    assert all(one != other for one, other in itertools.pairwise(table.values()))


@given(MEASURED)
def test_the_table_is_a_setting(speeds: dict[int, dict[int, float]]) -> None:
    table = table_of(speeds, 256)
    if any(table.values()):
        assert TandemConfig.from_mapping({"mode": "speculative", "drafts": table}).drafts == table


def test_counts_that_are_none_are_refused_before_an_engine_starts(tmp_path: object) -> None:
    for option, code in (
        ("--batches=0,4", "option-not-counts"),
        ("--drafts=two", "option-not-counts"),
        ("--drafts=64", ""),
    ):
        result = CliRunner().invoke(app, ["drafts", "--senior", "x/y", option])
        assert result.exit_code == 1
        assert "Error" in result.stderr
        assert code in result.stderr


def test_batches_that_no_engine_takes_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scheduler = SimpleNamespace(max_num_seqs=2, max_num_batched_tokens=64)
    config = SimpleNamespace(vllm_config=SimpleNamespace(scheduler_config=scheduler))
    engine = nullcontext(SimpleNamespace(llm_engine=config))
    monkeypatch.setattr(drafts, "_engine", lambda *_: engine)
    monkeypatch.setattr(rollouts_engine, "check_drafting_here", lambda: None)
    (tmp_path / "config.json").write_text("{}")
    command = ["drafts", "--senior", str(tmp_path), "--batches=4,8", "--drafts=2"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "--batches 4,8: none is within max_num_seqs=2." in result.stderr
    assert "[draft-batches-too-large]" in result.stderr


def test_machine_that_does_not_draft_is_told_before_an_engine_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runners = ModuleType("tandem_plugin.engine.runners")
    runners.__dict__["default_runner"] = lambda: ("cpu", "V1")
    monkeypatch.setitem(sys.modules, runners.__name__, runners)
    monkeypatch.setattr(drafts, "_engine", lambda *_: pytest.fail("an engine started"))
    (tmp_path / "config.json").write_text("{}")
    result = CliRunner().invoke(app, ["drafts", "--senior", str(tmp_path)])
    assert result.exit_code == 1
    assert "[speculative-runner-v1]" in result.stderr
