"""The images of a prompt as a page shows them: small, from the row alone, or why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from tandem_plugin.errors import DataError
from tandem_plugin.lab.data.pictures import PictureError, thumbnail
from tandem_plugin.lab.viewer.responses import prompt_of

Shown: TypeAlias = tuple[str | None, str]
"""A ``data:`` URL and the alternative text of an image; None and a sentence if it has none."""

_MOST = 16
"""Images of a prompt on a page."""


def shown_pictures(fields: Mapping[str, Any]) -> list[Shown]:
    """The images of a row's prompt, in their order; empty without any.

    They are in the field ``images`` or ``image``, as ``tandem rollout`` and TRL's dumps in tandem
    have them, or in the parts of a chat. No other file is read, and nothing is fetched.
    """
    values = list(_values(fields))
    shown = [_shown(n, len(values), value) for n, value in enumerate(values[:_MOST], 1)]
    if len(values) > _MOST:
        shown.append((None, f"{len(values) - _MOST:,} more images are not shown."))
    return shown


def _values(fields: Mapping[str, Any]) -> Iterator[Any]:
    for name in ("images", "image"):
        if (value := fields.get(name)) not in (None, [], ""):
            yield from value if isinstance(value, list) else [value]
            return
    prompt = prompt_of(fields)
    for turn in prompt if isinstance(prompt, list) else ():
        content = turn.get("content") if isinstance(turn, Mapping) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, Mapping) and part.get("type") in ("image", "image_url"):
                url = part.get("image_url")
                yield part.get("image") or (url.get("url") if isinstance(url, Mapping) else url)


def _shown(number: int, count: int, value: Any) -> Shown:
    try:
        return thumbnail(value), f"Image {number} of {count}"
    except (PictureError, DataError) as error:
        reason = error.message if isinstance(error, DataError) else error
        return None, f"Image {number} of {count} is not shown: it {reason}"
