"""Numbers of drafts that ``tandem drafts`` is asked to time, and which of them is the fastest."""

from __future__ import annotations

from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.commands.drafts import fastest


def test_fastest_is_lockstep_unless_a_number_of_drafts_is_faster() -> None:
    assert fastest({0: 2.0, 4: 3.0, 8: 2.5}) == 4
    assert fastest({4: 2.0, 0: 2.0}) == 0


def test_counts_that_are_none_are_refused_before_an_engine_starts() -> None:
    for option in ("--batches=0,4", "--drafts=two", "--drafts=64"):
        result = CliRunner().invoke(app, ["drafts", "--senior", "x/y", option])
        assert result.exit_code == 1
        assert "Error" in result.stderr
