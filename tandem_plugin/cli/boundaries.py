"""``tandem boundaries``: what a resolver finds in a tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.terminal.output import JsonOption, cell, print_json, table_console

if TYPE_CHECKING:
    from tandem_plugin.boundaries import BoundarySet, Vocabulary

__all__ = ["boundaries"]


def boundaries(
    tokenizer: Annotated[
        str,
        typer.Argument(
            help="A tokenizer folder, a file (tokenizer.json, or a JSON object that maps "
            "tokens to ids), or the name of a repository (owner/name)."
        ),
    ],
    resolver: Annotated[str, typer.Option(help="The boundary resolver.")] = "word",
    examples: Annotated[int, typer.Option(min=0, help="Number of boundaries to show.")] = 10,
    json: JsonOption = False,
) -> None:
    """Count the boundaries that a resolver finds in a tokenizer's vocabulary.

    Prints their number, their share of the vocabulary, examples, and the digest that represents the
    boundary set in the fingerprint.
    """
    from tandem_plugin.boundaries import Vocabulary
    from tandem_plugin.plugins.selection import check_resolver, resolve_boundaries

    check_resolver(resolver)
    vocabulary = Vocabulary.from_path(tokenizer)
    found = resolve_boundaries(resolver, vocabulary)
    result = {
        "tokenizer": tokenizer,
        "resolver": resolver,
        "vocabulary": len(vocabulary),
        "boundaries": found.count,
        "share": found.count / len(vocabulary),
        "digest": found.digest,
        "examples": _examples(found, vocabulary, examples),
    }
    if json:
        print_json(result)
    else:
        _print(result)


def _examples(found: BoundarySet, vocabulary: Vocabulary, number: int) -> list[dict[str, Any]]:
    """Boundaries spread evenly over the set, so that rare pieces show as well as common ones."""
    import numpy as np

    ids = np.flatnonzero(found.table)
    chosen = np.linspace(0, ids.size - 1, num=min(number, ids.size)).round().astype(int)
    return [{"id": int(i), "piece": vocabulary.pieces[i]} for i in ids[chosen]]


def _print(result: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    share = f"{result['share']:.1%}"
    rows = {
        "tokenizer": result["tokenizer"],
        "resolver": result["resolver"],
        "boundaries": f"{result['boundaries']:,} of {result['vocabulary']:,} token ids ({share})",
        "digest": result["digest"],
        "examples": ", ".join(f"{e['id']} {e['piece']!r}" for e in result["examples"]) or "none",
    }
    for name, value in rows.items():
        table.add_row(name, cell(value))
    table_console().print(table)
