"""Tandem seeds: one per generated response, derived from the run's or the request's seed."""

from __future__ import annotations

import hashlib
import json
import operator

from tandem_plugin._draws import check_seed


def derive_seed(base: int, *parts: int | str) -> int:
    """A tandem seed for the given ``parts``, such as step, prompt, sibling and call.

    base: the run's seed. Returns an int from 0 to 2**63 - 1, the same in every process and Python
    version; different parts, or the same parts in a different order, give a different seed. The
    integer 1 and the string "1" are different parts. Raises :class:`RequestError` for a base out of
    range and TypeError for a part that is neither an integer nor a string. Source: keyed BLAKE2
    (RFC 7693).
    """
    key = check_seed(base).to_bytes(8, "big")
    text = json.dumps([p if isinstance(p, str) else operator.index(p) for p in parts])
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "big") >> 1


def sample_seed(seed: int, index: int) -> int:
    """The tandem seed of sample ``index`` of a request for several samples (``n`` > 1).

    The first sample uses the request's own seed, so it has the same authors as the single sample of
    a request with n = 1. The others use derived seeds, so the authors of the samples are
    independent. Raises :class:`RequestError` for a seed out of range.
    """
    return check_seed(seed) if index == 0 else derive_seed(seed, "sample", index)
