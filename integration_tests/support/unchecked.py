"""Test hook: the trainer takes every batch as it comes."""

from typing import Any

from tandem_plugin.training import run


def _take(*_: Any) -> None: ...


run.check_rows = _take
run.AdmittedBatch.check = _take  # type: ignore[method-assign]
