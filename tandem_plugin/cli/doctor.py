"""``tandem doctor``: is this environment ready for tandem, and if not, how to fix it?"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.terminal.output import JsonOption, cell, print_json, table_console

if TYPE_CHECKING:
    from tandem_plugin.cli.machine import Finding

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
    findings = _findings()
    if stack is not None:
        findings = _needed(findings, stack)
    problem = any(finding.status == "problem" for finding in findings)
    if json:
        print_json(_result(findings, ok=not problem))
    else:
        _print(findings)
    raise typer.Exit(1 if problem else 0)


def _findings() -> list[Finding]:
    from rich.console import Console

    from tandem_plugin.cli.checks import CHECKS
    from tandem_plugin.cli.machine import Machine

    with Console(stderr=True).status("Looking at vLLM and verl"):
        machine = Machine.here()
        return [check(machine) for check in CHECKS]


def _needed(findings: list[Finding], stack: Stack) -> list[Finding]:
    """The same findings, with missing requirements of the stack as problems."""
    from dataclasses import replace

    from tandem_plugin.cli.checks import STACKS

    return [
        replace(one, status="problem")
        if one.status == "missing" and one.check in STACKS[stack.value]
        else one
        for one in findings
    ]


def _result(findings: list[Finding], ok: bool) -> dict[str, Any]:
    from dataclasses import asdict

    return {"ok": ok, "findings": [asdict(finding) for finding in findings]}


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
