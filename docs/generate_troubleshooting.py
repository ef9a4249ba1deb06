"""Writes docs/troubleshooting.md from the table of refusals, tandem_plugin/refusals.json.

Run ``python docs/generate_troubleshooting.py`` after a change of the table: a test fails until
then. What a sentence says of a run's own values stands between ‹ and ›.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tandem_plugin.refusals import ADVICE, GROUPS, Group

PAGE = Path(__file__).with_name("troubleshooting.md")

AT_THE_TERMINAL = {
    "Problem sets",
    "Rollouts and files",
    "Grading",
    "Evaluation",
    "Planning",
    "Commands",
}
"""Groups of what a command refuses: no log of a trainer or an engine lies between it and a user."""

HEAD = """\
# Troubleshooting

Written by `docs/generate_troubleshooting.py` from `tandem_plugin/refusals.json`: what is refused in
engines and trainers, and what to do. Each message ends with its code, such as `[TP102]`: search the
page for it. What stands between ‹ and › is of your own run.

First, in the environment of the run, `tandem doctor`: it prints versions, the model runner, whether
the plugin and the adapters are active, and how to fix what is not. A trainer's log says
`tandem is on: schedule=...` once where tandem is on. For what is no refusal, such as a run that is
slow or does not learn, see [a first run](first-run.md).

Where a trainer refuses something only because nobody has shown that it works, its message ends with
the name that allows it by `tandem.unproven=[NAME]`. What is known to be wrong has no name.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for group in GROUPS:
        parts.append(f"## {group.title}\n\n{group.guide}\n")
        if group.title in AT_THE_TERMINAL:
            first, *_, last = group.refusals
            parts.append(
                f"{first} to {last} are said where the command was typed, remedy included.\n"
            )
        else:
            parts += ["| Code | It says | What to do |\n|---|---|---|", *_rows(group), ""]
    return "\n".join(parts)


def _rows(group: Group) -> Iterator[str]:
    """A row for each remedy, with all refusals that it is for."""
    by_remedy: dict[str, list[str]] = {}
    for code, (_, remedy) in group.refusals.items():
        by_remedy.setdefault(remedy, []).append(code)
    for remedy, codes in by_remedy.items():
        said = "<br>".join(cell(group.refusals[code][0]) for code in codes)
        yield f"| {'<br>'.join(codes)} | {said} | {cell(remedy)} |"


def cell(template: str) -> str:
    """A template as text of a table's cell: nothing in it is Markdown or HTML."""
    text = " ".join(re.sub(r"\{\{|\}\}|\{([a-z_]+)[^{}]*\}", _written, template).split())
    escaped = re.sub(r"([\\`*_\[\]|~])", r"\\\1", text)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _written(found: re.Match[str]) -> str:
    """A brace of the sentence's own, advice, or the name of a value."""
    name = found[1]
    if name is None:
        return found[0][0]
    return ADVICE.get(name) or f"‹{name.replace('_', ' ')}›"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
