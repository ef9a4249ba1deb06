"""What must hold of every training batch before a trainer may learn from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tandem_plugin.errors import AuthorshipError, EngineError, FingerprintError
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.rows import Row

__all__ = ["check_no_errors", "check_rows", "check_validation_rows"]


def check_rows(rows: Sequence[Row], rules: TandemRules) -> None:
    """Raise unless every row's authorship is whole, the run's own, and the only tokens trained on.

    rules: the trainer's own. Raises :class:`AuthorshipError`,
    :class:`FingerprintError`, or :class:`EngineError` for a trajectory that the engine refused.
    """
    check_no_errors(rows)
    if not rows:
        raise AuthorshipError(
            "The batch is empty: every rollout of this step failed. The first error is above, in "
            "the log of a process that generates."
        )
    for row in rows:
        _check_row(row, rules.of(row.settings).fingerprint)
        if rules.config.lambda_jun:
            _check_junior_mask(row)
    _check_groups(rows)


def check_validation_rows(rows: Sequence[Row], team: bool, rules: TandemRules) -> None:
    """Raise unless every validation response was written by who was asked to.

    team: whether that is the team; otherwise it is the senior alone. Raises as :func:`check_rows`
    does.
    """
    check_no_errors(rows)
    for row in rows:
        if team:
            _check_row(row, rules.of(row.settings).fingerprint)
        elif row.authorship is not None:
            raise AuthorshipError(
                f"{row.name} was written by the team, but it answers a validation prompt that the "
                "senior was to answer alone."
            )


def check_no_errors(rows: Iterable[Row]) -> None:
    """Raise :class:`EngineError` when a trajectory failed in tandem."""
    for row in rows:
        if row.error is not None:
            raise EngineError(f"A trajectory failed in tandem: {row.error}")


def _check_row(row: Row, fingerprint: str) -> None:
    length = len(row.response_ids)
    if row.authorship is None:
        raise AuthorshipError(
            f"{row.name} has no authorship: tandem is asked for, but the process that generated it "
            "had no active tandem adapter. Check that tandem-plugin is installed on every node and "
            "that no setting turns its adapter off; 'tandem doctor' says which do."
        )
    for name, mask in (
        ("authorship", row.authorship),
        ("response_mask", row.response_mask),
        ("loss_mask", row.loss_mask),
    ):
        if mask is not None and len(mask) != length:
            raise AuthorshipError(
                f"{row.name} has {length} response tokens but {len(mask)} entries of {name}: "
                "something between the agent loop and the trainer cut or padded it."
            )
    if row.fingerprint != fingerprint:
        raise FingerprintError(
            f"{row.name} was generated under the rules {row.fingerprint}, but this run's are "
            f"{fingerprint}. Use the same tandem-plugin version, settings and tokenizer in every "
            "process."
        )
    for name, mask in (("response_mask", row.response_mask), ("loss_mask", row.loss_mask)):
        if mask is None:
            continue
        foreign = np.flatnonzero(mask & ~row.authorship)
        if foreign.size:
            raise AuthorshipError(
                f"The {name} of {row.name} trains on {foreign.size} tokens that the senior did not "
                f"write, the first at position {int(foreign[0])}: it was not narrowed to the "
                "senior's tokens, or was replaced afterwards."
            )


def _check_junior_mask(row: Row) -> None:
    """Raise unless what is to be imitated are tokens that the junior wrote."""
    assert row.authorship is not None
    mask = row.junior_mask
    if mask is None or len(mask) != len(row.response_ids):
        entries = "no" if mask is None else str(len(mask))
        raise AuthorshipError(
            f"{row.name} has {len(row.response_ids)} response tokens but {entries} entries that "
            "say which are the junior's, and lambda_jun is above 0: something between the agent "
            "loop and the trainer cut or dropped them."
        )
    written = np.zeros(len(mask), dtype=np.bool_)
    for _, start, stop in row.passages:
        written[start:stop] = True
    foreign = np.flatnonzero(mask & (row.authorship | ~written))
    if foreign.size:
        raise AuthorshipError(
            f"{row.name} would have the senior imitate {foreign.size} tokens that the junior did "
            f"not write, the first at position {int(foreign[0])}."
        )


def _check_groups(rows: Sequence[Row]) -> None:
    has_senior: dict[str, bool] = {}
    for row in rows:
        senior = row.authorship is not None and bool(row.authorship.any())
        has_senior[row.group] = has_senior.get(row.group, False) or senior
    without = [group for group, senior in has_senior.items() if not senior]
    if without:
        raise AuthorshipError(
            f"{len(without)} of {len(has_senior)} prompts have no response with a token of the "
            f"senior's (the first is {without[0]}): there is nothing to learn from them. Raise p, "
            "the number of responses to a prompt or their length, or choose a schedule in which "
            "the senior writes."
        )
