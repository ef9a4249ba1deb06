"""Metrics of the trainer's log: who wrote a batch, and what its engines counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin._draws import response_draws
from tandem_plugin.engine.wire import DraftStats, MeasureSums
from tandem_plugin.schedules.alone import ALONE
from tandem_plugin.training.authorship_wire import ResponseAuthorship, bits_of
from tandem_plugin.training.rows import GRADED, Row


def batch_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """All metrics of one training batch that can be computed from its rows."""
    return {**tandem_metrics(rows), **metrics_together(rows), **grading_metrics(rows)}


def tandem_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """The metrics of one training batch, over the tokens whose author is known.

    ``tandem/senior_share``: the senior's tokens over all tokens. ``tandem/spans_per_response`` and
    ``tandem/handoffs_per_response``: means over responses; a tool output, or a token of unknown
    author, ends a span but is no handoff. ``tandem/junior_spans_per_response`` and
    ``tandem/tokens_per_junior_span``: the same of the junior's spans, which are the calls of a
    schedule that lets the senior call; without any their length is left out.
    ``tandem/responses_without_senior``: how many responses
    have no token of the senior's. ``tandem/prompts_without_senior``: how many prompts have no
    response with a token to train. ``tandem/tokens_of_unknown_author``: how many tokens are not
    trained because two calls could have written them with different authors.
    """
    facts = [row.facts for row in rows if row.facts is not None]
    if not facts:
        return {}
    lengths = np.array([response.length for response in facts])
    senior = np.concatenate([response.authorship for response in facts])
    written = np.concatenate([_written(response) for response in facts])
    row_of_token = np.repeat(np.arange(len(rows)), lengths)

    begins = np.ones(len(senior), dtype=np.bool_)  # of a run of one row's written tokens
    begins[1:] = (row_of_token[1:] != row_of_token[:-1]) | ~written[:-1]
    begins &= written
    handoffs = np.zeros(len(senior), dtype=np.bool_)
    handoffs[1:] = senior[1:] != senior[:-1]
    handoffs &= written & ~begins
    unknown = sum(int(response.unknown_mask.sum()) for response in facts)
    of_junior = int(((begins | handoffs) & ~senior).sum())
    senior_tokens = np.bincount(row_of_token, weights=senior & written, minlength=len(rows))
    length = {"tandem/tokens_per_junior_span": int((written & ~senior).sum()) / max(of_junior, 1)}
    return {
        "tandem/senior_share": float(senior_tokens.sum() / max(int(written.sum()), 1)),
        "tandem/spans_per_response": float((begins.sum() + handoffs.sum()) / len(rows)),
        "tandem/handoffs_per_response": float(handoffs.sum() / len(rows)),
        "tandem/junior_spans_per_response": of_junior / len(rows),
        **(length if of_junior else {}),
        "tandem/responses_without_senior": float((senior_tokens == 0).sum()),
        "tandem/prompts_without_senior": float(_prompts_without_senior(rows)),
        "tandem/tokens_of_unknown_author": float(unknown),
    }


def metrics_together(rows: Sequence[Row]) -> dict[str, float]:
    """The metrics of the responses that both models may write, in a run with a share alone.

    ``tandem/alone_share``: the share of responses that the senior writes alone.
    ``tandem/senior_share_together`` and ``tandem/spans_per_response_together``: as in
    :func:`tandem_metrics`, over the others. Empty without such a share.
    """
    facts = [row.facts for row in rows if row.facts is not None]
    if not any(response.settings.get(ALONE) for response in facts):
        return {}
    together = [row for row in rows if row.facts is None or not _is_alone(row.facts)]
    metrics = {"tandem/alone_share": 1 - len(together) / len(rows)}
    measured = tandem_metrics(together)
    for name in ("tandem/senior_share", "tandem/spans_per_response"):
        if name in measured:
            metrics[f"{name}_together"] = measured[name]
    return metrics


def _is_alone(facts: ResponseAuthorship) -> bool:
    """Whether the senior writes a response alone: each of its calls, by that call's seed."""
    seeds = [seed for seed, _, _ in facts.segments] or [facts.seed]
    return bool((response_draws(seeds) < facts.settings.get(ALONE, 0.0)).all())


def _prompts_without_senior(rows: Sequence[Row]) -> int:
    trained = {row.group for row in rows if row.response_mask.any()}
    return len({row.group for row in rows} - trained)


def grading_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """``grading/OUTCOME``: the share of responses with each outcome of tandem's reward for verl."""
    names = sorted({name for row in rows for name in row.graded})
    return {
        f"grading/{name.removeprefix(GRADED)}": float(
            sum(row.graded.get(name, 0) for row in rows) / len(rows)
        )
        for name in names
    }


def counters_of_engines(engines: Sequence[Any], name: str) -> list[dict[str, Any]]:
    """The counters of each engine, from ``tandem_counters`` of its Ray actor.

    name: one of the names for ``collective_rpc`` in :mod:`tandem_plugin.engine.wire`.
    """
    if not engines:
        return []
    import ray

    counters: list[dict[str, Any]] = ray.get(
        [engine.tandem_counters.remote(name) for engine in engines]
    )
    return counters


class EngineLog:
    """Turns engines' counters, which only grow, into the metrics of each step.

    kind: of the counters: :class:`DraftStats` or :class:`MeasureSums`.
    """

    def __init__(self, kind: type[DraftStats | MeasureSums]) -> None:
        self._kind = kind
        self._before: list[Any] = []

    def step(self, engines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """The metrics of what was counted since the last step, over all engines.

        engines: the counters of one worker of each, always in the same order. A rate or mean over
        nothing is omitted. ``tandem/draft_acceptance``: the share of drafts for the senior's tokens
        that it accepted; ``tandem/tokens_per_round``: per forward pass of the senior;
        ``tandem/forwards_per_token``: of both models; ``tandem/junior_cross_entropy`` and
        ``tandem/overlap``: means of the junior's -log p and of alpha over the senior's tokens
        (section 4.5 of the paper); ``tandem/senior_entropy`` and ``tandem/kl_to_junior``: of the
        senior's entropy and KL(senior || junior) over the same; ``tandem/senior_cross_entropy``: of
        the senior's -log p over the junior's tokens.
        """
        now = [self._kind(**counters) for counters in engines]
        before = self._before if len(self._before) == len(now) else [self._kind()] * len(now)
        self._before = now
        increments: list[Any] = [a.since(b) for a, b in zip(now, before, strict=True)]
        total = sum(increments, self._kind())
        means = _draft_rates(total) if isinstance(total, DraftStats) else total.means()
        return {f"tandem/{name}": value for name, value in means.items()}


def _draft_rates(drafts: DraftStats) -> dict[str, float]:
    rates = {
        "draft_acceptance": drafts.acceptance,
        "tokens_per_round": drafts.tokens_per_round,
        "forwards_per_token": drafts.forwards_per_token,
    }
    return {name: rate for name, rate in rates.items() if not np.isnan(rate)}


def _written(facts: ResponseAuthorship) -> NDArray[np.bool_]:
    written = bits_of(((start, stop) for _, start, stop in facts.segments), facts.length)
    return written & ~facts.unknown_mask
