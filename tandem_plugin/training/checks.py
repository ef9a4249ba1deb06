"""What must hold of every training batch before a trainer may learn from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError, EngineError, FingerprintError
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.authorship_wire import bits_of
from tandem_plugin.training.log_probs import check_log_probs
from tandem_plugin.training.replaying import replay_rows
from tandem_plugin.training.rows import Row

__all__ = ["AdmittedBatch", "check_no_errors", "check_rows", "check_validation_rows"]


def check_rows(rows: Sequence[Row], rules: TandemRules) -> None:
    """Raise unless every row's authorship is its replay and its masks, bit for bit, the senior's.

    Every row is replayed here, from its tokens and seeds: nothing that came with it is taken at its
    word. rules: the trainer's own. Raises :class:`AuthorshipError`, :class:`FingerprintError`, or
    :class:`EngineError` for a trajectory that the engine refused.
    """
    check_no_errors(rows)
    if not rows:
        raise AuthorshipError(
            "The batch is empty: every rollout of this step failed. The first error is above, in "
            "the log of a process that generates."
        )
    for row in rows:
        _check_row(row, rules.for_recorded_step(row.settings).fingerprint)
        _check_junior(row, rules.config.juniors)
    for row, senior in zip(rows, replay_rows(rows, rules), strict=True):
        _check_replay(row, senior)
        _check_masks(row, senior, bool(rules.config.lambda_jun))
        if row.rollout_log_probs is not None:
            check_log_probs(row.name, row.rollout_log_probs, row.response_mask)
    _check_unknown(rows, rules.config.max_unknown_share)
    _check_trains(rows)


def check_validation_rows(rows: Sequence[Row], team: bool, rules: TandemRules) -> None:
    """Raise unless every validation response was written by who was asked to.

    team: whether that is the team; otherwise it is the senior alone. Raises as :func:`check_rows`
    does.
    """
    check_no_errors(rows)
    for row in rows:
        if team:
            _check_row(row, rules.for_recorded_step(row.settings).fingerprint)
            _check_junior(row, rules.config.juniors)
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
    if len(row.authorship) != length:
        raise AuthorshipError(
            f"{row.name} has {length} response tokens but {len(row.authorship)} entries of "
            "authorship: something between the agent loop and the trainer cut or padded it."
        )
    if row.fingerprint != fingerprint:
        raise FingerprintError(
            f"{row.name} was generated under the rules {row.fingerprint}, but this run's are "
            f"{fingerprint}. Use the same tandem-plugin version, settings and tokenizer in every "
            "process."
        )


def _check_junior(row: Row, juniors: Sequence[str]) -> None:
    """Raise unless the row was written with one of the run's juniors, and says with which."""
    if row.junior not in juniors and (row.junior is not None or len(juniors) > 1):
        raise AuthorshipError(
            f"{row.name} was written with the junior {row.junior!r}, and this run's are "
            f"{list(juniors)}: use the same settings in every process, and go on from a "
            "checkpoint with the juniors that its responses were written with."
        )


def _check_replay(row: Row, senior: NDArray[np.bool_]) -> None:
    """Raise unless the authorship that came with the row is the one that its tokens replay to."""
    assert row.authorship is not None
    if row.segments and row.seed != row.segments[0][0]:
        raise AuthorshipError(
            f"{row.name} came with the tandem seed {row.seed}, but the first of its generate calls "
            f"had {row.segments[0][0]}: something between the agent loop and the trainer mixed up "
            "rows."
        )
    differing = np.flatnonzero(row.authorship != senior)
    if differing.size:
        raise AuthorshipError(
            f"The authorship of {row.name} is not what its tokens and seeds replay to: it differs "
            f"at {differing.size} tokens, the first at position {int(differing[0])}. Something "
            "between the agent loop and the trainer changed it, its tokens or its seeds, or gave "
            "it another row's."
        )


def _check_masks(row: Row, senior: NDArray[np.bool_], imitates: bool) -> None:
    """Raise unless the masks are what the agent loop would train, the senior's part of it.

    imitates: whether the junior's part is to be imitated. Tokens of unknown author are in none of
    them. Whether there are more of those cannot be seen here: the calls that a loop dropped are
    known in the process that generated alone.
    """
    if row.trained is None:
        raise AuthorshipError(
            f"{row.name} does not say what its agent loop would train: the process that generated "
            "it has another version of tandem-plugin. Use the same one in every process."
        )
    written = bits_of(((start, stop) for _, start, stop in row.segments), len(senior))
    unwritten = np.flatnonzero(row.trained & ~written)
    if unwritten.size:
        raise AuthorshipError(
            f"{row.name} would train {unwritten.size} tokens that are of none of its generate "
            f"calls, the first at position {int(unwritten[0])}: something between the agent loop "
            "and the trainer dropped calls."
        )
    unknown = row.unknown_tokens
    if len(unknown) != len(senior) or (unknown & ~row.trained).any():
        raise AuthorshipError(
            f"{row.name} names tokens of unknown author that its agent loop would not train: "
            "something between the agent loop and the trainer changed them."
        )
    known = row.trained & ~unknown
    loss = [("loss_mask", row.loss_mask, known & senior)] if row.loss_mask is not None else []
    junior = [("junior_mask", row.junior_mask, known & ~senior)] if imitates else []
    for name, mask, expected in (
        ("response_mask", row.response_mask, known & senior),
        *loss,
        *junior,
    ):
        if mask is None or len(mask) != len(expected):
            raise AuthorshipError(
                f"{row.name} has {len(expected)} response tokens but "
                f"{'no' if mask is None else len(mask)} entries of {name}: something between the "
                "agent loop and the trainer cut or dropped them."
            )
        differing = np.flatnonzero(mask != expected)
        if differing.size:
            author = "junior" if name == "junior_mask" else "senior"
            raise AuthorshipError(
                f"The {name} of {row.name} is not what the {author} wrote: it differs at "
                f"{differing.size} tokens, the first at position {int(differing[0])}. It was not "
                f"narrowed to the {author}'s tokens, or was changed afterwards."
            )


def _check_unknown(rows: Sequence[Row], most: float) -> None:
    """Raise where the author of too many of a batch's tokens is unknown.

    most: the largest share of what agent loops would train, ``max_unknown_share``.
    """
    unknown = sum(int(row.unknown_tokens.sum()) for row in rows)
    trained = sum(int(row.trained.sum()) for row in rows if row.trained is not None)
    if unknown > most * trained:
        raise AuthorshipError(
            f"Who wrote {unknown} of the {trained} tokens that the agent loops would train in this "
            f"batch is unknown, a share of {unknown / trained:.3f}, above "
            f"max_unknown_share={most}: several calls of a trajectory wrote the same tokens with "
            "different authors, and the loop kept nothing that tells them apart. Give every "
            "candidate a trajectory of its own, let the loop mask such tokens, or raise "
            "max_unknown_share: tokens of unknown author are never trained."
        )


def _check_trains(rows: Sequence[Row]) -> None:
    """Raise where the batch as a whole has nothing to learn from."""
    if not any(row.response_mask.any() for row in rows):
        raise AuthorshipError(
            f"None of the {len(rows)} responses of the batch has a token of the senior's to train: "
            "there is nothing to learn from. Raise p, the number of prompts in a batch, of "
            "responses to a prompt or their length, or choose a schedule in which the senior "
            "writes."
        )


class AdmittedBatch:
    """The masks of the batch that was checked last, by its rows' names."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._masks = {row.name: row.response_mask for row in rows}

    def check(self, rows: Sequence[Row], rejects: bool) -> None:
        """Raise :class:`AuthorshipError` unless an update trains on what was admitted.

        rows: those of the update, with the masks that the loss will use. Rows that are not of the
        batch are the trainer's padding, and train nothing. rejects: whether the trainer may leave
        tokens out, as rejection sampling does; none may be added.
        """
        for row in rows:
            masks = {"response_mask": row.response_mask, "loss_mask": row.loss_mask}
            for name, mask in masks.items():
                if mask is not None:
                    self._check_mask(row.name, name, mask, rejects)

    def _check_mask(self, row: str, name: str, mask: NDArray[np.bool_], rejects: bool) -> None:
        admitted = self._masks.get(row)
        if admitted is None:
            if mask.any():
                raise AuthorshipError(
                    f"{row} trains {int(mask.sum())} tokens, and was not among the rows that the "
                    "trainer checked before the update: something in the trainer's process adds "
                    "rows, or keeps batches from the check. Use verl's own trainers."
                )
            return
        if len(mask) != len(admitted):
            raise AuthorshipError(
                f"{row} had {len(admitted)} response tokens when it was checked, and has "
                f"{len(mask)} entries of {name} before the update."
            )
        changed = mask & ~admitted if rejects else mask != admitted
        if changed.any():
            raise AuthorshipError(
                f"The {name} of {row} changed between the trainer's check and the update, at "
                f"{int(changed.sum())} tokens, the first at position {int(changed.argmax())}: "
                "something in the trainer's process writes masks. Remove it, since what the senior "
                "wrote was settled before."
            )
