"""The exact law of a tandem response over a tiny vocabulary, by enumerating every response.

Written from the paper's Algorithm 1 and two Hugging Face models; nothing here is the package's.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

PIECES = ["Ġa", "Ġb", "c", "d", "e", "f"]
BOUNDARIES = {0, 1}

Response = tuple[tuple[int, ...], tuple[bool, ...]]
"""Token ids and their authors, true = senior."""
Distribution = dict[tuple[int, ...], dict[bool, np.ndarray]]
"""After each beginning of a response, each author's distribution of the next token."""


def tiny_tokenizer() -> Any:
    """A byte-level tokenizer of six pieces, of which the first two begin a word."""
    core = Tokenizer(models.BPE({piece: i for i, piece in enumerate(PIECES)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core)


@torch.no_grad()
def distributions(
    senior: Path, junior: Path, prompt: list[int], length: int, temperature: float, top_p: float
) -> Distribution:
    """Both models' next tokens after every beginning of a response, processed as vLLM does."""
    loaded = {
        author: AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        for author, path in ((True, senior), (False, junior))
    }
    found: Distribution = {}
    for size in range(length):
        beginnings = list(itertools.product(range(len(PIECES)), repeat=size))
        ids = torch.tensor([[*prompt, *beginning] for beginning in beginnings])
        rows = {author: model(ids).logits[:, -1].double() for author, model in loaded.items()}
        for i, beginning in enumerate(beginnings):
            found[beginning] = {
                author: _processed(logits[i].numpy(), temperature, top_p)
                for author, logits in rows.items()
            }
    return found


def _processed(logits: np.ndarray, temperature: float, top_p: float) -> np.ndarray:
    scaled = logits / temperature
    p = np.exp(scaled - scaled.max())
    p /= p.sum()
    order = np.argsort(p, kind="stable")
    dropped = np.cumsum(p[order]) <= 1 - top_p
    dropped[-1] = False
    p[order[dropped]] = 0
    return p / p.sum()


Writes = Callable[[int, dict[bool, np.ndarray], bool], np.ndarray]
"""(position, distributions, author) to the distribution that the author's token comes from."""
Chances = list[tuple[float, bool, Any]]
"""Probabilities of an author with the state of a schedule."""


def law(
    after: Distribution, length: int, p: float, cap: int, writes: Writes | None = None
) -> dict[Response, float]:
    """The probability of every response with its authors, by Algorithm 1.

    writes: as for :func:`law_of`.
    """
    drawn = [(p, True, 0), (1 - p, False, 0)]

    def step(author: bool, run: int, token: int) -> Chances:
        redraw = token in BOUNDARIES or run >= cap
        return drawn if redraw else [(1.0, author, run + 1)]

    return law_of(after, length, drawn, step, writes)


def law_of(
    after: Distribution,
    length: int,
    start: Chances,
    step: Callable[[bool, Any, int], Chances],
    writes: Writes | None = None,
) -> dict[Response, float]:
    """The probability of every response with its authors, by the chances of a schedule.

    start: of the first token. step: of the next one, by author, state and token. writes: own
    distributions where None; for the laws of engines that are wrong.
    """
    now: dict[tuple[Response, bool, Any], float] = {
        (((), ()), author, state): weight for weight, author, state in start
    }
    for position in range(length):
        following: Counter[tuple[Response, bool, Any]] = Counter()
        for ((tokens, authors), author, state), weight in now.items():
            own = after[tokens]
            row = own[author] if writes is None else writes(position, own, author)
            for token in np.flatnonzero(row).tolist():
                longer = ((*tokens, token), (*authors, author))
                for chance, next_author, next_state in step(author, state, token):
                    following[longer, next_author, next_state] += weight * row[token] * chance
        now = dict(following)
    whole: Counter[Response] = Counter()
    for (response, _, _), weight in now.items():
        whole[response] += weight
    return dict(whole)


@dataclass(frozen=True)
class Statistic:
    """Something that is counted of each response."""

    name: str
    of: Callable[[Response], Any]

    def expected(self, law: dict[Response, float]) -> dict[Any, float]:
        found: Counter[Any] = Counter()
        for response, weight in law.items():
            found[self.of(response)] += weight
        return dict(found)

    def counts(self, responses: Iterable[Response]) -> Counter[Any]:
        return Counter(map(self.of, responses))


def window(start: int, stop: int) -> Statistic:
    """Tokens and authors of some positions, jointly."""
    return Statistic(
        f"tokens and authors {start} to {stop - 1}", lambda r: (r[0][start:stop], r[1][start:stop])
    )


def _cells(expected: dict[Any, float], samples: int) -> tuple[list[Any], np.ndarray]:
    """The values that are counted apart, and the expected counts: theirs, and of the rest."""
    apart = [value for value, weight in expected.items() if weight * samples >= 5]
    own = np.array([expected[value] for value in apart]) * samples
    return apart, np.append(own, samples - own.sum())


def fit(statistic: Statistic, exact: dict[Response, float], responses: list[Response]) -> float:
    """The p-value of responses under an exact law; 0 where one of them is impossible."""
    expected, counts = statistic.expected(exact), statistic.counts(responses)
    if any(value not in expected for value in counts):
        return 0.0
    apart, cells = _cells(expected, len(responses))
    seen = np.array([counts[value] for value in apart])
    seen = np.append(seen, len(responses) - seen.sum())
    if cells[-1] < 5:  # too few to be counted as a cell: they join the last one
        cells = np.append(cells[:-2], cells[-2:].sum())
        seen = np.append(seen[:-2], seen[-2:].sum())
    return float(stats.chisquare(seen, cells, sum_check=False).pvalue)


def power(
    statistic: Statistic,
    exact: dict[Response, float],
    wrong: dict[Response, float],
    samples: int,
    significance: float,
) -> float:
    """How surely :func:`fit` rejects responses of a wrong law, from the non-central chi-square."""
    expected, other = statistic.expected(exact), statistic.expected(wrong)
    apart, cells = _cells(expected, samples)
    theirs = np.array([other.get(value, 0.0) for value in apart]) * samples
    theirs = np.append(theirs, samples - theirs.sum())
    keep = cells >= 5
    noncentrality = float((((theirs - cells) ** 2 / np.maximum(cells, 1e-9))[keep]).sum())
    freedom = int(keep.sum()) - 1
    return float(stats.ncx2.sf(stats.chi2.isf(significance, freedom), freedom, noncentrality))
