"""Tables of an evaluation as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.paper_table import PaperTable

__all__ = ["table_json"]


def table_json(table: PaperTable) -> dict[str, Any]:
    """A table and its cells."""
    return {
        "name": table.name,
        "title": table.title,
        "note": table.note,
        "columns": list(table.columns),
        "rows": [
            [
                {"text": cell.text, "error": cell.error, "bold": cell.bold, "stars": cell.stars}
                for cell in row
            ]
            for row in table.rows
        ],
    }
