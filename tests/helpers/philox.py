"""Draws and sample seeds in plain Python, written from docs/schedules.md alone.

To test the package, and the document, against.
"""

from __future__ import annotations

import hashlib

WORD = 1 << 64
M0, M1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
W0, W1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B


def hi(product: int) -> int:
    return product // WORD


def lo(product: int) -> int:
    return product % WORD


def philox_4x64_10(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, ...]:
    """Four 64-bit words."""
    c0, c1, c2, c3 = counter
    for number in range(10):
        k0 = (key[0] + number * W0) % WORD
        k1 = (key[1] + number * W1) % WORD
        c0, c1, c2, c3 = hi(M1 * c2) ^ c1 ^ k0, lo(M1 * c2), hi(M0 * c0) ^ c3 ^ k1, lo(M0 * c0)
    return c0, c1, c2, c3


def words(seed: int, length: int) -> list[int]:
    """The words behind the first ``length`` draws of a seed."""
    found: list[int] = []
    block = 0
    while len(found) < length:
        found += philox_4x64_10((seed, 0), (block + 1, 0, 0, 0))
        block += 1
    return found[:length]


def draws(seed: int, length: int) -> list[float]:
    """The first ``length`` draws of a seed."""
    return [(word // 2**11) / 2**53 for word in words(seed, length)]


def response_draw(seed: int) -> float:
    """The draw of a response as a whole."""
    return (philox_4x64_10((seed, 1), (1, 0, 0, 0))[0] // 2**11) / 2**53


def sample_seed(seed: int, index: int) -> int:
    """The tandem seed of sample ``index`` of a request."""
    if index == 0:
        return seed
    text = f'["sample", {index}]'.encode("ascii")
    key = seed.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=key).digest(), "big") // 2
