"""The page itself: one HTML file that asks nothing of any network and runs no code but its own."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tandem_plugin._version import __version__

__all__ = ["make_page"]

_ASSETS = Path(__file__).with_name("assets")
_BASE64 = re.compile("[A-Za-z0-9+/]*={0,2}")
_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}


def make_page(title: str, index: Mapping[str, Any], parts: Sequence[str]) -> str:
    """The page of some rollouts.

    The index stands in a JSON block that a browser does not run, with everything that HTML could
    take for markup escaped; parts are Base64 in blocks of the same kind. The Content Security
    Policy lets only this page's own script and style run, by their hashes, and forbids every
    request. Raises ValueError for a part that is no Base64.
    """
    if not all(map(_BASE64.fullmatch, parts)):
        raise ValueError("A part of the page is no Base64.")
    script = _script()
    style = (_ASSETS / "page.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types"
    )
    filled = {
        "policy": policy,
        "title": html.escape(title).encode("ascii", "xmlcharrefreplace").decode(),
        "version": html.escape(__version__),
        "style": style,
        "script": script,
        "rollouts": json.dumps(index, allow_nan=False, separators=(",", ":")).translate(_ESCAPES),
        "parts": "\n".join(
            f'<script type="application/octet-stream" id="part-{i}">{part}</script>'
            for i, part in enumerate(parts)
        ),
    }
    template = (_ASSETS / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]], template)


def _script() -> str:
    """The page's one script: its files, in the order of their names, in a scope of their own."""
    parts = [file.read_text(encoding="utf-8") for file in sorted(_ASSETS.glob("*.js"))]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _hash(source: str) -> str:
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return f"'sha256-{digest}'"
