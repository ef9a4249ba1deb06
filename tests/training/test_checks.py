"""What stops a trainer before it learns from a batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.lab.rollouts.audit import Audit, RuleBook
from tandem_plugin.lab.rollouts.rollout import read_rollouts
from tandem_plugin.training.checks import (
    AdmittedBatch,
    check_no_errors,
    check_rows,
    check_validation_rows,
)
from tandem_plugin.training.metrics import batch_metrics
from tandem_plugin.training.rows import Row


def rules_with(**settings: object) -> TandemRules:
    config = TandemConfig.from_mapping({"schedule": "token", **settings})
    return TandemRules(config, Vocabulary(tuple("abcdefgh"), "a test"))


RULES, IMITATING = rules_with(), rules_with(lambda_jun=0.1)


@cache
def seed_of(authorship: tuple[int, ...]) -> int:
    """A seed under which as many tokens have these authors."""
    ids = list(range(len(authorship)))
    return next(s for s in count() if RULES.default.replay(ids, s).tolist() == list(authorship))


def row(authorship: list[int], group: str = "g", **fields: Any) -> Row:
    senior = np.array(authorship, dtype=bool)
    seed = seed_of(tuple(authorship))
    whole = Row(
        name="Row 0",
        group=group,
        response_ids=np.arange(len(senior)),
        response_mask=senior.copy(),
        loss_mask=senior.copy(),
        junior_mask=~senior,
        authorship=senior,
        seed=seed,
        fingerprint=RULES.fingerprint,
        segments=[[seed, 0, len(senior)]],
        trained=np.ones(len(senior), dtype=bool),
    )
    return replace(whole, **fields)


def with_trained(good: Row, trained: Any, unknown: Any = None) -> Row:
    """A row whose loop would train other tokens, of which some have no known author."""
    known = trained if unknown is None else trained & ~unknown
    senior = good.authorship
    assert senior is not None
    masks = {"response_mask": known & senior, "loss_mask": known & senior}
    return replace(good, trained=trained, unknown=unknown, junior_mask=known & ~senior, **masks)


GOOD = row([1, 0, 0, 1])
TURNS = replace(
    row([1, 0, 0, 1]),
    response_ids=np.array([0, 1, 2, 3, 7, 7, 0, 1]),
    segments=[[seed_of((1, 0, 0, 1)), 0, 4], [seed_of((0, 1)), 6, 8]],
    **{
        name: np.array([1, 0, 0, 1, 0, 0, 0, 1], dtype=bool)
        for name in ("authorship", "response_mask", "loss_mask")
    },
    trained=np.array([1, 1, 1, 1, 0, 0, 1, 1], dtype=bool),
    junior_mask=np.array([0, 1, 1, 0, 0, 0, 1, 0], dtype=bool),
)
"""Two calls with a tool's output between them."""


@pytest.mark.parametrize("rules", [RULES, IMITATING], ids=["", "imitating"])
def test_rows_that_replay_pass(rules: TandemRules) -> None:
    of_junior = row([0, 0, 0])  # beside others that have a token to train
    masked = with_trained(GOOD, np.array([False, False, True, True]))
    check_rows([GOOD, TURNS, row([0, 1, 1]), of_junior, masked], rules)


@pytest.mark.parametrize(
    ("junior", "passing", "wrong"),
    [(["a", "b"], ["a", "b"], ["c", None]), ("a", ["a", None], ["b"]), (None, [None], ["b"])],
)
def test_rows_say_which_of_the_runs_juniors_wrote_them(
    junior: object, passing: list[Any], wrong: list[Any]
) -> None:
    """A run with one junior needs no word of it."""
    rules = rules_with(junior=junior)
    for check in (check_rows, lambda rows, rules: check_validation_rows(rows, True, rules)):
        check([replace(GOOD, junior=name) for name in passing], rules)
        for name in wrong:
            with refused("TP409", junior=name):
                check([replace(GOOD, junior=name)], rules)


def flipped(mask: Any, place: int) -> Any:
    changed = mask.copy()
    changed[place] = not changed[place]
    return changed


def with_masks(good: Row, change: Callable[[Any], Any]) -> Row:
    """A row whose authorship and masks were all changed in the same way, as a bad replay would."""
    senior = change(good.authorship)
    return replace(
        good,
        authorship=senior,
        response_mask=good.trained & senior,
        loss_mask=good.trained & senior,
        junior_mask=good.trained & ~senior,
    )


LONG = row([1, 0, 0, 1, 1, 0, 1, 1])
ALTERED = {
    "complement": lambda good: with_masks(good, np.logical_not),
    "one bit flipped": lambda good: with_masks(good, lambda senior: flipped(senior, 2)),
    "one token late": lambda good: with_masks(good, lambda senior: np.roll(senior, 1)),
    "one token early": lambda good: with_masks(good, lambda senior: np.roll(senior, -1)),
    "all the senior's": lambda good: with_masks(good, np.ones_like),
    "complement in the masks alone": lambda good: replace(
        good, response_mask=~good.authorship, loss_mask=~good.authorship
    ),
    "complement in the loss's alone": lambda good: replace(good, loss_mask=~good.authorship),
    "a token of the senior's left out": lambda good: replace(
        good, response_mask=flipped(good.response_mask, 0)
    ),
    "wrong seed": lambda good: replace(good, seed=good.seed + 1, segments=[[good.seed + 1, 0, 8]]),
    "seed of another row": lambda good: replace(good, seed=good.seed + 1),
    "other tokens": lambda good: replace(good, segments=[[good.seed, 0, 7]]),
    "segments missing": lambda good: replace(good, segments=[]),
    "segments missing, nothing trained": lambda good: with_masks(
        replace(good, segments=[]), np.zeros_like
    ),
    "segment behind the end": lambda good: replace(good, segments=[[good.seed, 0, 9]]),
    "segments over each other": lambda good: replace(
        good, segments=[[good.seed, 0, 5], [good.seed, 4, 8]]
    ),
    "trained ranges missing": lambda good: replace(good, trained=None),
    "trained ranges of fewer tokens": lambda good: replace(good, trained=flipped(good.trained, 0)),
}


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED.keys())
def test_row_that_does_not_replay_bit_for_bit_stops_training(alter: Any) -> None:
    check_rows([GOOD, LONG], RULES)
    with refused("TP410", "TP411", "TP412", "TP413", "TP416", "TP444", row="Row 0"):
        check_rows([GOOD, alter(LONG)], RULES)


@pytest.mark.parametrize("place", range(8))
def test_every_bit_of_every_mask_counts(place: int) -> None:
    for name in ("authorship", "response_mask", "loss_mask", "junior_mask"):
        altered = replace(TURNS, **{name: flipped(getattr(TURNS, name), place)})
        with refused("TP411", "TP416", row="Row 0"):
            check_rows([altered], IMITATING)


NOTHING = np.zeros(4, dtype=bool)
PADDING = replace(row([0, 0, 0, 0]), name="Row of padding", loss_mask=None)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (replace(GOOD, response_mask=~GOOD.response_mask), "TP421"),
        (replace(GOOD, loss_mask=flipped(GOOD.loss_mask, 0)), "TP421"),
        (replace(GOOD, response_mask=GOOD.response_mask[:-1]), "TP420"),
        (replace(PADDING, response_mask=~NOTHING), "TP419"),
        (replace(GOOD, name="Row of another batch"), "TP419"),
        (replace(GOOD, response_mask=NOTHING), "TP421"),
    ],
)
def test_update_uses_the_masks_that_were_admitted(changed: Row, code: str) -> None:
    admitted = AdmittedBatch([GOOD, replace(TURNS, name="Row 1")])
    rows = [replace(TURNS, name="Row 1"), PADDING, GOOD]
    admitted.check(rows, False)
    with refused(code):
        admitted.check([*rows, changed], False)


def test_update_may_leave_out_what_rejection_sampling_rejects_and_add_nothing() -> None:
    admitted = AdmittedBatch([GOOD])
    admitted.check([replace(GOOD, response_mask=NOTHING)], True)
    with refused("TP421", count=2):
        admitted.check([replace(GOOD, response_mask=~GOOD.response_mask)], True)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (replace(GOOD, authorship=None), "TP406"),
        (replace(GOOD, authorship=GOOD.authorship[:-1]), "TP407"),
        (replace(GOOD, response_mask=GOOD.response_mask[:-1]), "TP415"),
        (replace(GOOD, loss_mask=GOOD.loss_mask[:-1]), "TP415"),
        (replace(GOOD, response_mask=np.ones(4, bool)), "TP416"),
        (replace(GOOD, loss_mask=np.ones(4, bool)), "TP416"),
        (replace(GOOD, fingerprint="g"), "TP408"),
        (replace(GOOD, fingerprint=None), "TP408"),
        (replace(GOOD, error="RequestError: no."), "TP405"),
    ],
)
def test_row_that_must_not_be_trained_on(bad: Row, code: str) -> None:
    with refused(code):
        check_rows([GOOD, bad], RULES)


def test_batch_without_anything_to_train_stops() -> None:
    without = [row([0, 0], group="h"), row([0], group="h")]
    check_rows([GOOD, *without], RULES)
    masked = with_trained(GOOD, NOTHING)  # the senior's, but the loop masks it
    for rows in (without, [masked, *without]):
        with refused("TP418", responses=len(rows)):
            check_rows(rows, RULES)
    with refused("TP403"):
        check_rows([], RULES)


UNKNOWN = with_trained(
    row([1, 0, 0, 1, 1, 0, 1, 1]),
    np.array([1, 1, 1, 1, 1, 1, 1, 0], dtype=bool),
    np.array([0, 0, 1, 1, 0, 0, 0, 0], dtype=bool),
)
"""Of seven tokens that its loop would train, the authors of two are unknown."""


@pytest.mark.parametrize("lambda_jun", [0, 0.1])
def test_tokens_of_unknown_author_are_in_no_mask(lambda_jun: float) -> None:
    rules = rules_with(max_unknown_share=0.5, lambda_jun=lambda_jun)
    check_rows([GOOD, UNKNOWN], rules)
    assert UNKNOWN.unknown is not None
    for place in (2, 3):
        senior = bool(UNKNOWN.authorship is not None and UNKNOWN.authorship[place])
        for name in ("response_mask", "loss_mask"):
            altered = replace(UNKNOWN, **{name: flipped(getattr(UNKNOWN, name), place)})
            with refused("TP416", row="Row 0", name=name):
                check_rows([GOOD, altered], rules)
        # A hop that loses what is unknown, but not the masks that were made with it.
        lost = replace(UNKNOWN, unknown=flipped(UNKNOWN.unknown, place))
        if senior or rules.config.lambda_jun:
            with refused("TP416", row="Row 0"):
                check_rows([GOOD, lost], rules)
    for wrong in (flipped(UNKNOWN.unknown, 7), UNKNOWN.unknown[:-1]):
        with refused("TP414"):
            check_rows([GOOD, replace(UNKNOWN, unknown=wrong)], rules)


@pytest.mark.parametrize(("share", "passes"), [(0.19, True), (0.17, False), (0, False), (1, True)])
def test_batch_with_too_many_tokens_of_unknown_author_stops_training(
    share: float, passes: bool
) -> None:
    """Two of the eleven that the loops would train."""
    rules = rules_with(max_unknown_share=share)
    if passes:
        check_rows([GOOD, UNKNOWN], rules)
    else:
        with refused("TP417", unknown=2, trained=11):
            check_rows([GOOD, UNKNOWN], rules)


def test_validation_rows_are_whose_they_should_be() -> None:
    alone = replace(GOOD, authorship=None, seed=None, fingerprint=None, segments=[])
    check_no_errors([alone])
    check_validation_rows([GOOD, row([0, 0], "h")], True, RULES)
    check_validation_rows([alone], False, RULES)
    with refused("TP406"):
        check_validation_rows([GOOD, alone], True, RULES)
    with refused("TP408", fingerprint="g"):
        check_validation_rows([replace(GOOD, fingerprint="g")], True, RULES)
    with refused("TP404"):
        check_validation_rows([alone, GOOD], False, RULES)
    for team in (True, False):
        with refused("TP405", error="RequestError: no."):
            check_validation_rows([replace(alone, error="RequestError: no.")], team, RULES)


def test_dumps_replay_and_count_tokens_of_unknown_author_apart(tmp_path: Path) -> None:
    """Also that of a response of which its loop masked all: it has no segment, and no author."""
    masked = with_trained(replace(GOOD, segments=[], authorship=NOTHING), NOTHING)
    settings = RULES.default.settings()
    known, dumped = (replace(one, settings=settings) for one in (UNKNOWN, masked))
    file = tmp_path / "dump.jsonl"
    file.write_text("".join(json.dumps(one.dump()) + "\n" for one in (known, known, dumped)))
    assert json.loads(file.read_text().splitlines()[0])["tandem_unknown"] == [[2, 4]]
    audit = Audit(RuleBook(RULES.vocabulary, {}), 10)
    audit.add(list(read_rollouts(file)))
    assert (audit.differing_rows, audit.rows) == (0, 3)
    assert (audit.tokens, audit.unknown_tokens, audit.senior_tokens) == (12, 4, 8)
    assert (audit.spans, audit.handoffs) == (10, 6)  # 1 0 . . 1 0 1 1
    metrics = batch_metrics([known, known])
    assert metrics["tandem/senior_share"] == 8 / 12
    assert metrics["tandem/spans_per_response"] == 5
    assert metrics["tandem/handoffs_per_response"] == 3
    assert metrics["tandem/tokens_of_unknown_author"] == 4
