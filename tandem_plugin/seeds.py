"""Tandem seeds for trainers: one a generated response, from the run's seed and its own place."""

from __future__ import annotations

import hashlib
import json
import operator

from tandem_plugin.draws import check_seed

__all__ = ["derive_seed"]


def derive_seed(base: int, *parts: int | str) -> int:
    """A tandem seed for whatever ``parts`` name, such as step, prompt, sibling and call.

    base: the run's seed. Returns an int from 0 to 2**63 - 1, the same in every process and version
    of Python; other parts, or the same in another order, give another seed. The integer 1 and the
    string "1" are different parts. Raises :class:`RequestError` for a base out of range and
    TypeError for a part that is neither an integer nor a string. Source: keyed BLAKE2 (RFC 7693).
    """
    key = check_seed(base).to_bytes(8, "big")
    text = json.dumps([p if isinstance(p, str) else operator.index(p) for p in parts])
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "big") >> 1
