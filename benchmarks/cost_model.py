"""What drafting should bring: the cost model that measurements are held against."""

from __future__ import annotations

__all__ = ["ratio_to_single", "tokens_per_round"]

P = 0.5
"""How often a token is the senior's."""


def tokens_per_round(acceptance: float, drafts: int) -> float:
    """Expected tokens a round where every token's author is drawn by itself.

    A draft holds with probability s = (1 - p) + p a, where a is the acceptance where the senior
    writes. Every position up to the first that does not hold brings a token, and so does the one
    behind the last draft where the senior writes it: the sum of s^i for i < k, and p s^k. Authors
    that stay for a word change s and p little, since they are the senior's as often.
    """
    s = (1 - P) + P * acceptance
    tokens = P * s**drafts
    for i in range(drafts):
        tokens += s**i
    return float(tokens)


def ratio_to_single(tokens_per_round: float, drafts: int, junior: float) -> float:
    """Throughput over a single model's, where a forward pass costs the same for few tokens as one.

    junior: the cost of the junior's forward pass in the senior's. Decoding is so where reading the
    weights takes the time; what is launched beside the two models is not counted.
    """
    return tokens_per_round / (1 + drafts * junior)
