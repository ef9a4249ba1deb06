"""What ``tandem drafts`` rejects before it starts an engine."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.commands import drafts
from tandem_plugin.lab.rollouts import engine as rollouts_engine


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
