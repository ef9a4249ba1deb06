"""Metrics of the trainer's log: who wrote a batch, and what its engines counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.engine.measures import MeasureSums
from tandem_plugin.engine.speculative.draft_stats import DraftStats
from tandem_plugin.training.authorship_wire import GRADED, bits_of
from tandem_plugin.training.juniors import JUNIOR
from tandem_plugin.training.rows import Row

__all__ = [
    "PROMPTS_WITHOUT_SENIOR",
    "TOKENS_OF_UNKNOWN_AUTHOR",
    "EngineLog",
    "batch_metrics",
    "graded",
    "grading_metrics",
    "labels",
    "metrics_of_juniors",
    "tandem_metrics",
]

PROMPTS_WITHOUT_SENIOR = "tandem/prompts_without_senior"
TOKENS_OF_UNKNOWN_AUTHOR = "tandem/tokens_of_unknown_author"


def batch_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """All metrics of one training batch that can be computed from its rows."""
    return {**tandem_metrics(rows), **grading_metrics(rows)}


def tandem_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """The metrics of one training batch, over the tokens whose author is known.

    ``tandem/senior_share``: the senior's tokens over all tokens. ``tandem/spans_per_response`` and
    ``tandem/handoffs_per_response``: means over responses; a tool output, or a token of unknown
    author, ends a span but is no handoff. ``tandem/responses_without_senior``: how many responses
    have no token of the senior's. ``tandem/prompts_without_senior``: how many prompts have no
    response with a token to train. ``tandem/tokens_of_unknown_author``: how many tokens are not
    trained because two calls could have written them with different authors. Where calls asked for
    schedules of their own, ``tandem/calls/SCHEDULE/tokens_per_response`` and ``.../senior_share``
    for each schedule, the run's own among them.
    """
    if not rows:
        return {}
    lengths = np.array([len(row.response_ids) for row in rows])
    senior = np.concatenate([_authorship(row) for row in rows])
    written = np.concatenate([_written(row) for row in rows])
    row_of_token = np.repeat(np.arange(len(rows)), lengths)

    begins = np.ones(len(senior), dtype=np.bool_)  # of a run of one row's written tokens
    begins[1:] = (row_of_token[1:] != row_of_token[:-1]) | ~written[:-1]
    begins &= written
    handoffs = np.zeros(len(senior), dtype=np.bool_)
    handoffs[1:] = senior[1:] != senior[:-1]
    handoffs &= written & ~begins
    senior_tokens = np.bincount(row_of_token, weights=senior & written, minlength=len(rows))
    return {
        "tandem/senior_share": float(senior_tokens.sum() / max(int(written.sum()), 1)),
        "tandem/spans_per_response": float((begins.sum() + handoffs.sum()) / len(rows)),
        "tandem/handoffs_per_response": float(handoffs.sum() / len(rows)),
        "tandem/responses_without_senior": float((senior_tokens == 0).sum()),
        PROMPTS_WITHOUT_SENIOR: float(_prompts_without_senior(rows)),
        TOKENS_OF_UNKNOWN_AUTHOR: float(sum(int(row.unknown_tokens.sum()) for row in rows)),
        **_call_metrics(rows),
    }


def _prompts_without_senior(rows: Sequence[Row]) -> int:
    trained = {row.group for row in rows if row.response_mask.any()}
    return len({row.group for row in rows} - trained)


def _call_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """What the calls of each schedule wrote, where not all were of the run's."""
    if not any(row.asked for row in rows):
        return {}
    tokens: Counter[str] = Counter()
    senior: Counter[str] = Counter()
    for row in rows:
        own = (row.settings or {}).get("schedule", "")
        asked = row.asked or (None,) * len(row.segments)
        for (_, start, stop), rule in zip(row.segments, asked, strict=True):
            name = own if rule is None else rule[1]["schedule"]
            known = ~row.unknown_tokens[start:stop]
            tokens[name] += int(known.sum())
            senior[name] += int((_authorship(row)[start:stop] & known).sum())
    metrics = {}
    for name in sorted(tokens):
        metrics[f"tandem/calls/{name}/tokens_per_response"] = tokens[name] / len(rows)
        metrics[f"tandem/calls/{name}/senior_share"] = senior[name] / max(tokens[name], 1)
    return metrics


def graded(reward: Any) -> dict[str, float]:
    """The outcome flags among what a reward function returned."""
    if not isinstance(reward, Mapping):
        return {}
    flags = {name: value for name, value in reward.items() if str(name).startswith(GRADED)}
    return {name: float(value) for name, value in flags.items() if value is not None}


def grading_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """The share of a training batch's responses with each outcome; none under another reward.

    ``grading/correct``, ``grading/incorrect``, ``grading/copied``, ``grading/no_answer``,
    ``grading/timeout`` and ``grading/error``, as reported by tandem's reward for verl.
    """
    names = sorted({name for row in rows for name in row.graded})
    return {
        f"grading/{name.removeprefix(GRADED)}": float(
            sum(row.graded.get(name, 0) for row in rows) / len(rows)
        )
        for name in names
    }


def labels(juniors: Sequence[str]) -> dict[str, str]:
    """The name of each junior in metrics: its path's last part, numbered if several share one."""
    parts = [PurePosixPath(one).name for one in juniors]
    if len(set(parts)) < len(parts):
        parts = [f"{part}-{number}" for number, part in enumerate(parts, 1)]
    return dict(zip(juniors, parts, strict=True))


def metrics_of_juniors(rows: Sequence[Row], juniors: Sequence[str]) -> dict[str, float]:
    """The metrics of a training batch for each junior of a pool; none if there is only one.

    ``tandem/juniors/JUNIOR/responses``: how many were written with it, plus every metric of the
    batch over these alone, such as ``tandem/juniors/JUNIOR/senior_share``.
    """
    if len(juniors) < 2:
        return {}
    metrics: dict[str, float] = {}
    for junior, label in labels(juniors).items():
        own = [row for row in rows if row.junior == junior]
        metrics |= _named(label, {"responses": float(len(own)), **batch_metrics(own)})
    return metrics


class EngineLog:
    """Turns engines' counters, which only grow, into the metrics of each step.

    kind: of the counters: :class:`DraftStats` or :class:`MeasureSums`. juniors: the run's; of a
    pool, what the engines of each counted is logged apart as well.
    """

    def __init__(self, kind: type[DraftStats | MeasureSums], juniors: Sequence[str] = ()) -> None:
        self._kind = kind
        self._labels = labels(juniors) if len(juniors) > 1 else {}
        self._before: list[Any] = []

    def step(self, engines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """The metrics of what came since the last step, over all engines and each junior's.

        engines: the counters of each, always in the same order, beside its junior
        (:func:`~tandem_plugin.training.juniors.counters_of_engine`). A rate or mean that had
        nothing to count is left out. Of drafts, ``tandem/draft_acceptance``: the share of those
        that the senior checked as its own and wrote; ``tandem/tokens_per_round``: tokens a forward
        pass of the senior; ``tandem/forwards_per_token``: forward passes of both models a token. Of
        measures (section 4.5 of the paper), ``tandem/junior_cross_entropy`` and ``tandem/overlap``:
        means over the measured tokens that the senior wrote, of the junior's -log p and of alpha;
        ``tandem/senior_cross_entropy``: the mean of the senior's -log p over those that the junior
        wrote.
        """
        now = [self._kind(**{k: v for k, v in one.items() if k != JUNIOR}) for one in engines]
        before = self._before if len(self._before) == len(now) else [self._kind()] * len(now)
        self._before = now
        more = [a.since(b) for a, b in zip(now, before, strict=True)]
        metrics = self._metrics(more)
        for junior, label in self._labels.items():
            own = [one for one, of in zip(more, engines, strict=True) if of.get(JUNIOR) == junior]
            metrics |= _named(label, self._metrics(own))
        return metrics

    def _metrics(self, counted: Sequence[Any]) -> dict[str, float]:
        total = sum(counted, self._kind())
        found = _draft_rates(total) if isinstance(total, DraftStats) else total.means()
        return {f"tandem/{name}": value for name, value in found.items()}


def _draft_rates(drafts: DraftStats) -> dict[str, float]:
    rates = {
        "draft_acceptance": drafts.acceptance,
        "tokens_per_round": drafts.tokens_per_round,
        "forwards_per_token": drafts.forwards_per_token,
    }
    return {name: rate for name, rate in rates.items() if not np.isnan(rate)}


def _named(label: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"tandem/juniors/{label}/{k.removeprefix('tandem/')}": v for k, v in metrics.items()}


def _authorship(row: Row) -> NDArray[np.bool_]:
    if row.authorship is None:
        return np.zeros(len(row.response_ids), dtype=np.bool_)
    return row.authorship


def _written(row: Row) -> NDArray[np.bool_]:
    written = bits_of(((start, stop) for _, start, stop in row.segments), len(row.response_ids))
    return written & ~row.unknown_tokens
