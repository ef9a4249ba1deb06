"""The page itself: one HTML file that asks nothing of any network and runs no code but its own."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from tandem_plugin._version import __version__

__all__ = ["make_page"]

_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}


def make_page(title: str, payload: Mapping[str, Any]) -> str:
    """The page of some rollouts.

    Texts stand in a JSON block that a browser does not run, with everything that HTML could take
    for markup escaped. The Content Security Policy lets only this page's own script and style run,
    by their hashes, and forbids every request.
    """
    assets = files("tandem_plugin.viewer")
    script = assets.joinpath("page.js").read_text(encoding="utf-8")
    style = assets.joinpath("page.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types"
    )
    parts = {
        "policy": policy,
        "title": html.escape(title).encode("ascii", "xmlcharrefreplace").decode(),
        "version": html.escape(__version__),
        "style": style,
        "script": script,
        "rollouts": json.dumps(payload, allow_nan=False).translate(_ESCAPES),
    }
    template = assets.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _hash(source: str) -> str:
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return f"'sha256-{digest}'"
