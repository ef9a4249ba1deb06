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

from tandem_plugin import (
    EngineError,
    Rule,
    TandemConfig,
    TandemRules,
    Vocabulary,
)
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

RULES = TandemRules(
    TandemConfig.from_mapping({"schedule": "token"}),
    Vocabulary(tuple("abcdefgh"), "a test"),
)
IMITATING = TandemRules(
    TandemConfig.from_mapping({"schedule": "token", "lambda_jun": 0.1}), RULES.vocabulary
)


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


WORDS = Vocabulary(tuple("Ġa" if i % 3 == 0 else "b" for i in range(8)), "a test")


def replayed(rule: Rule, ids: Any, seed: int) -> Row:
    """A row that is all of one call."""
    senior = rule.replay(ids.tolist(), seed).senior
    whole = Row("Row 0", "g", ids, senior, senior, seed, rule.fingerprint)
    trained = np.ones(len(ids), dtype=bool)
    return replace(whole, segments=[[seed, 0, len(ids)]], trained=trained)


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


def test_whole_batch_passes() -> None:
    check_rows([GOOD, row([0, 1, 1])], RULES)


def rules_with(junior: object) -> TandemRules:
    config = TandemConfig.from_mapping({"schedule": "token", "junior": junior})
    return TandemRules(config, RULES.vocabulary)


def test_rows_of_a_pool_say_which_of_its_juniors_wrote_them() -> None:
    pool = rules_with(["a", "b"])
    batch = [replace(GOOD, junior="a"), row([0, 1, 1], junior="b")]
    check_rows(batch, pool)
    check_validation_rows(batch, True, pool)
    for wrong in ("c", None):
        for check in (check_rows, lambda rows, rules: check_validation_rows(rows, True, rules)):
            with refused("TP409", juniors="['a', 'b']", junior=wrong):
                check([replace(GOOD, junior=wrong)], pool)


def test_row_of_a_run_with_one_junior_need_not_say_it_but_says_no_other() -> None:
    for rules, name in ((rules_with("a"), "a"), (RULES, None)):
        for passing in (None, name):
            check_rows([replace(GOOD, junior=passing)], rules)
        with refused("TP409", junior="b"):
            check_rows([replace(GOOD, junior="b")], rules)


def test_response_without_senior_passes_beside_one_that_has() -> None:
    check_rows([row([0, 0, 0]), GOOD], RULES)


def test_tokens_that_the_loop_masks_are_not_trained() -> None:
    trained = np.array([False, False, True, True])
    masked = replace(
        GOOD,
        trained=trained,
        response_mask=trained & GOOD.authorship,
        loss_mask=trained & GOOD.authorship,
        junior_mask=trained & ~GOOD.authorship,
    )
    check_rows([masked], RULES)
    check_rows([masked], IMITATING)


def test_whole_batch_passes_with_the_tokens_to_imitate() -> None:
    check_rows([GOOD, TURNS, row([0, 1, 1])], IMITATING)


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


@pytest.mark.parametrize(
    "columns",
    [("authorship",), ("response_mask", "loss_mask"), ("seed", "segments"), ("response_ids",)],
)
def test_rows_whose_columns_were_swapped_stop_training(columns: tuple[str, ...]) -> None:
    rules = TandemRules(TandemConfig.from_mapping({"schedule": "word"}), WORDS)
    rng = np.random.default_rng(0)
    first, second = (replayed(rules.default, rng.integers(0, 8, 40), seed) for seed in (5, 6))
    check_rows([first, second], rules)
    changes = {name: getattr(second, name) for name in columns}
    with refused("TP411", "TP416", row="Row 0"):
        check_rows([replace(first, **changes), second], rules)


@pytest.mark.parametrize("place", range(8))
def test_every_bit_of_every_mask_counts(place: int) -> None:
    for name in ("authorship", "response_mask", "loss_mask", "junior_mask"):
        altered = replace(TURNS, **{name: flipped(getattr(TURNS, name), place)})
        with refused("TP411", "TP416", row="Row 0"):
            check_rows([altered], IMITATING)


def test_update_uses_the_masks_that_were_admitted() -> None:
    admitted = AdmittedBatch([GOOD, replace(TURNS, name="Row 1")])
    padding = row([0], name="Row of padding", response_mask=np.zeros(1, dtype=bool))
    padding = replace(padding, loss_mask=padding.response_mask)
    rows = [replace(TURNS, name="Row 1"), padding, GOOD]
    admitted.check(rows, False)
    for changed in (
        replace(GOOD, response_mask=~GOOD.response_mask),
        replace(GOOD, loss_mask=flipped(GOOD.loss_mask, 0)),
        replace(padding, response_mask=~padding.response_mask),
        replace(GOOD, name="Row of another batch"),
        replace(GOOD, response_mask=GOOD.response_mask[:-1]),
    ):
        with refused("TP419", "TP420", "TP421"):
            admitted.check([*rows, changed], False)


def test_update_may_leave_out_what_rejection_sampling_rejects_and_add_nothing() -> None:
    admitted = AdmittedBatch([GOOD])
    rejected = replace(GOOD, response_mask=np.zeros(4, dtype=bool))
    admitted.check([rejected], True)
    with refused("TP421", count=2):
        admitted.check([rejected], False)
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


def test_prompt_without_any_token_of_the_seniors_passes_and_a_whole_batch_of_them_does_not() -> (
    None
):
    without = [row([0, 0], group="h"), row([0], group="h")]
    check_rows([GOOD, *without], RULES)
    masked = with_trained(GOOD, np.zeros(4, dtype=bool))  # the senior's, but the loop masks it
    for rows in (without, [masked, *without]):
        with refused("TP418", responses=len(rows)):
            check_rows(rows, RULES)


def with_trained(good: Row, trained: Any, unknown: Any = None) -> Row:
    """A row whose loop would train other tokens, of which some have no known author."""
    known = trained if unknown is None else trained & ~unknown
    senior = good.authorship
    assert senior is not None
    masks = {"response_mask": known & senior, "loss_mask": known & senior}
    return replace(good, trained=trained, unknown=unknown, junior_mask=known & ~senior, **masks)


UNKNOWN = with_trained(
    row([1, 0, 0, 1, 1, 0, 1, 1]),
    np.array([1, 1, 1, 1, 1, 1, 1, 0], dtype=bool),
    np.array([0, 0, 1, 1, 0, 0, 0, 0], dtype=bool),
)
"""Of seven tokens that its loop would train, the authors of two are unknown."""

HALF = {
    "loss": TandemRules(
        TandemConfig.from_mapping({"schedule": "token", "max_unknown_share": 0.5}), RULES.vocabulary
    ),
    "imitation": TandemRules(
        TandemConfig.from_mapping(
            {"schedule": "token", "max_unknown_share": 0.5, "lambda_jun": 0.1}
        ),
        RULES.vocabulary,
    ),
}


@pytest.mark.parametrize("rules", HALF.values(), ids=HALF.keys())
def test_tokens_of_unknown_author_are_in_no_mask(rules: TandemRules) -> None:
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
    rules = TandemRules(
        TandemConfig.from_mapping({"schedule": "token", "max_unknown_share": share}),
        RULES.vocabulary,
    )
    if passes:
        check_rows([GOOD, UNKNOWN], rules)
    else:
        with refused("TP417", unknown=2, trained=11):
            check_rows([GOOD, UNKNOWN], rules)


def test_rollout_log_probs_are_zero_outside_the_mask() -> None:
    check_rows([replace(GOOD, rollout_log_probs=np.where(GOOD.response_mask, -1.0, 0.0))], RULES)
    for wrong in (-np.ones(4), np.zeros(3)):
        with refused("TP432", "TP433", row="Row 0"):
            check_rows([replace(GOOD, rollout_log_probs=wrong)], RULES)


def test_empty_batch_stops_training() -> None:
    with refused("TP403"):
        check_rows([], RULES)


def test_validation_stops_on_errors_only() -> None:
    check_no_errors([replace(GOOD, authorship=None)])
    with pytest.raises(EngineError):
        check_no_errors([replace(GOOD, error="no")])


def test_validation_rows_are_whose_they_should_be() -> None:
    alone = replace(GOOD, authorship=None, seed=None, fingerprint=None, segments=[])
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


def test_dump_of_a_response_without_a_trained_token_replays(tmp_path: Path) -> None:
    """Its loop masked all of it: no segment, and no author."""
    masked = replace(
        replayed(RULES.default, np.arange(8), 5),
        authorship=np.zeros(8, dtype=bool),
        segments=[],
        settings=RULES.default.settings(),
    )
    file = tmp_path / "dump.jsonl"
    file.write_text(json.dumps(masked.dump()))
    audit = Audit(RuleBook(RULES.vocabulary, {}), 10)
    audit.add(list(read_rollouts(file)))
    assert (audit.differing_rows, audit.rows, audit.tokens) == (0, 1, 0)


def test_dump_of_tokens_of_unknown_author_replays_and_counts_them_apart(tmp_path: Path) -> None:
    known = replace(UNKNOWN, settings=RULES.default.settings())
    file = tmp_path / "dump.jsonl"
    file.write_text("".join(json.dumps(one.dump()) + "\n" for one in (known, known)))
    assert json.loads(file.read_text().splitlines()[0])["tandem_unknown"] == [[2, 4]]
    audit = Audit(RuleBook(RULES.vocabulary, {}), 10)
    audit.add(list(read_rollouts(file)))
    assert (audit.differing_rows, audit.rows) == (0, 2)
    assert (audit.tokens, audit.unknown_tokens, audit.senior_tokens) == (12, 4, 8)
    assert (audit.spans, audit.handoffs) == (10, 6)  # 1 0 . . 1 0 1 1
    metrics = batch_metrics([known, known])
    assert metrics["tandem/senior_share"] == 8 / 12
    assert metrics["tandem/spans_per_response"] == 5
    assert metrics["tandem/handoffs_per_response"] == 3
    assert metrics["tandem/tokens_of_unknown_author"] == 4
