"""``tandem plugins``: the schedules and boundary resolvers that can be selected."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.terminal.output import JsonOption, print_json, table_console

if TYPE_CHECKING:
    from tandem_plugin.plugins import Catalogue, Registration


def plugins(
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 if a plugin cannot be used.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List every schedule and boundary resolver that can be selected by name.

    Prints name, kind, parameters with types and defaults, token classes, distribution and version,
    then the plugins that cannot be used and why. Schedules are tested on NumPy arrays, as in
    replay, and, if torch is installed, on tensors, as in an engine. A broken plugin affects only
    runs that select one of its names, so the exit code is 0, or 1 with --strict. A name registered
    by two distributions stops every run, and the exit code is 1.
    """
    import importlib.util
    import logging
    from importlib.metadata import entry_points

    from tandem_plugin.plugins.hookspecs import PROJECT
    from tandem_plugin.plugins.loading import catalogue

    # What the warning says is in the listing.
    logging.getLogger("tandem_plugin.plugins.loading").disabled = True
    if importlib.util.find_spec("torch") is not None and entry_points(group=PROJECT):
        importlib.import_module("torch")
    result = _result(catalogue())
    if json:
        print_json(result)
    else:
        _print(result)
    raise typer.Exit(1 if strict and result["broken"] else 0)


def _result(plugins: Catalogue) -> dict[str, Any]:
    return {
        "ok": not plugins.broken,
        "registered": [_entry(entry) for entry in plugins.registrations],
        "broken": [
            {"plugin": plugin.name, **asdict(plugin.provider), "reason": plugin.reason}
            for plugin in plugins.broken
        ],
    }


def _entry(entry: Registration) -> dict[str, Any]:
    from tandem_plugin.schedules.parameters import schedule_signature

    parameters = schedule_signature(entry.value) if entry.kind == "schedule" else ()
    return {
        "name": entry.name,
        "kind": entry.kind,
        "parameters": [{"name": p.name, "type": p.type, "default": p.default} for p in parameters],
        "classes": list(entry.classes),
        **asdict(entry.provider),
    }


def _print(result: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from tandem_plugin.plugins.contracts import described_classes

    console = table_console()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("name", "kind", "parameters", "distribution"):
        table.add_column(heading, overflow="fold")
    for entry in result["registered"]:
        described = [f"{p['name']}: {p['type']} = {p['default']}" for p in entry["parameters"]]
        if entry["classes"]:
            described.append(described_classes(tuple(entry["classes"])))
        row = (entry["name"], entry["kind"], ", ".join(described))
        table.add_row(*map(Text, (*row, f"{entry['distribution']} {entry['version']}")))
    console.print(table)
    for broken in result["broken"]:
        console.print(
            f"Not usable: {broken['plugin']!r} of {broken['distribution']} {broken['version']}: "
            f"{broken['reason']}",
            style="yellow",
            markup=False,
        )
