"""``tandem doctor``: is this environment ready for tandem, and if not, how to fix it?"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from tandem_plugin.terminal.output import JsonOption, cell, print_json, table_console

if TYPE_CHECKING:
    from tandem_plugin.cli.checks import Finding

__all__ = ["doctor"]

_STYLES = {"ok": "green", "missing": "dim", "warning": "yellow", "problem": "red"}


class Stack(str, Enum):
    """What a run needs: an engine, or a trainer with one."""

    VLLM = "vllm"
    VERL = "verl"
    OPENRLHF = "openrlhf"
    TRL = "trl"


def doctor(
    stack: Annotated[
        Stack | None,
        typer.Argument(help="The framework that must be installed. Default: none is required."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check GPUs, versions, vLLM, tandem's plugin and adapters, and known traps.

    vLLM and verl are imported in separate processes, in parallel, which takes a few seconds. The
    exit code is 1 if there is a problem; a missing framework is a problem only if STACK requires
    it.
    """
    from dataclasses import asdict

    from rich.console import Console

    from tandem_plugin.cli.checks import findings
    from tandem_plugin.cli.machine import Machine

    with Console(stderr=True).status("Looking at vLLM and verl"):
        found = list(findings(Machine.here(), None if stack is None else stack.value))
    problem = any(finding.status == "problem" for finding in found)
    if json:
        print_json({"ok": not problem, "findings": [asdict(finding) for finding in found]})
    else:
        _print(found)
    raise typer.Exit(1 if problem else 0)


def _print(findings: list[Finding]) -> None:
    from collections import Counter

    from rich.table import Table

    console = table_console()
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        message = cell(finding.message)
        if finding.mend:
            message.append_text(cell(f"\n{finding.mend}", style="bold"))
        table.add_row(cell(finding.status, _STYLES[finding.status]), finding.check, message)
    console.print(table)
    counts = Counter(finding.status for finding in findings)
    console.print(
        f"{counts['ok']} ok, missing: {counts['missing']}, warnings: {counts['warning']}, "
        f"problems: {counts['problem']}"
    )
