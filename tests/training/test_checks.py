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
from tandem_plugin.training.authorship_wire import ResponseAuthorship, ranges_of
from tandem_plugin.training.checks import (
    AdmittedBatch,
    RowChecks,
    check_rows,
    check_validation_rows,
)
from tandem_plugin.training.metrics import batch_metrics
from tandem_plugin.training.rows import Row
from tandem_plugin.training.validation import SEVERAL, rule_of


def rules_with(**settings: object) -> TandemRules:
    config = TandemConfig.from_mapping({"schedule": "token", **settings})
    return TandemRules(config, Vocabulary(tuple("abcdefgh"), "a test"))


RULES = rules_with()


def bits(values: Any) -> Any:
    return np.array(values, dtype=bool)


def ranges(values: Any) -> Any:
    return tuple(ranges_of(bits(values)))


@cache
def seed_of(authorship: tuple[int, ...]) -> int:
    """A seed under which as many tokens have these authors."""
    ids = list(range(len(authorship)))
    return next(s for s in count() if RULES.default.replay(ids, s).tolist() == list(authorship))


def row(authorship: list[int], group: str = "g", **fields: Any) -> Row:
    """A row of one call; fields: of its facts."""
    seed, length = seed_of(tuple(authorship)), len(authorship)
    facts = ResponseAuthorship(
        RULES.fingerprint,
        RULES.default.settings(),
        seed,
        length,
        ((seed, 0, length),),
        ranges(authorship),
        ((0, length),),
    )
    facts = replace(facts, **fields)
    return Row("Row 0", group, np.arange(length), facts.mask, facts, facts.mask)


def facts_of(row: Row) -> ResponseAuthorship:
    assert row.facts is not None
    return row.facts


def with_facts(good: Row, **fields: Any) -> Row:
    return replace(good, facts=replace(facts_of(good), **fields))


def narrowed(good: Row, **fields: Any) -> Row:
    """The same, with masks that go with these facts, as a bad replay would narrow them."""
    changed = with_facts(good, **fields)
    mask = facts_of(changed).mask
    return replace(changed, response_mask=mask, loss_mask=mask)


def flipped(mask: Any, place: int) -> Any:
    changed = mask.copy()
    changed[place] = not changed[place]
    return changed


GOOD, LONG = row([1, 0, 0, 1]), row([1, 0, 0, 1, 1, 0, 1, 1])
NOTHING = bits([0, 0, 0, 0])
TURNS = narrowed(
    replace(LONG, response_ids=np.array([0, 1, 2, 3, 7, 7, 0, 1])),
    seed=seed_of((1, 0, 0, 1)),
    segments=((seed_of((1, 0, 0, 1)), 0, 4), (seed_of((0, 1)), 6, 8)),
    senior=ranges([1, 0, 0, 1, 0, 0, 0, 1]),
    trained=((0, 4), (6, 8)),
)
"""Two calls with a tool's output between them."""


def test_rows_that_replay_pass() -> None:
    of_junior = row([0, 0, 0])  # beside others that have a token to train
    masked = narrowed(row([1, 1, 0, 1]), trained=((2, 4),))
    check_rows([LONG, TURNS, row([0, 0, 1]), of_junior, masked], RULES)


@pytest.mark.parametrize(
    ("junior", "passing", "wrong"),
    [("a", ["a", None], ["b"]), (None, [None], ["b"])],
)
def test_rows_were_written_with_the_runs_junior(
    junior: str | None, passing: list[Any], wrong: list[Any]
) -> None:
    """A response may leave it out."""
    rules = rules_with(junior=junior)
    for check in (check_rows, lambda rows, rules: check_validation_rows(rows, "team", rules)):
        check([with_facts(GOOD, junior=name) for name in passing], rules)
        for name in wrong:
            with refused("row-junior-differs", junior=name):
                check([with_facts(GOOD, junior=name)], rules)


def authored(change: Callable[[Any], Any]) -> Callable[[Row], Row]:
    return lambda good: narrowed(good, senior=ranges(change(facts_of(good).authorship)))


SEED = facts_of(LONG).seed
ALTERED: dict[str, tuple[Callable[[Row], Row], str]] = {
    "complement": (authored(np.logical_not), "authorship-replay-differs"),
    "one token late": (authored(lambda senior: np.roll(senior, 1)), "authorship-replay-differs"),
    "all the senior's": (authored(np.ones_like), "authorship-replay-differs"),
    "complement in the masks alone": (
        lambda good: replace(good, response_mask=~good.response_mask, loss_mask=None),
        "mask-not-seniors",
    ),
    "not narrowed": (lambda good: replace(good, response_mask=bits([1] * 8)), "mask-not-seniors"),
    "wrong seed": (
        lambda good: with_facts(good, seed=SEED + 1, segments=((SEED + 1, 0, 8),)),
        "authorship-replay-differs",
    ),
    "seed of another row": (lambda good: with_facts(good, seed=SEED + 1), "row-seeds-mixed"),
    "other tokens": (
        lambda good: with_facts(good, segments=((SEED, 0, 7),)),
        "authorship-replay-differs",
    ),
    "segments missing": (lambda good: with_facts(good, segments=()), "authorship-replay-differs"),
    "segments missing, nothing trained": (
        lambda good: narrowed(good, segments=(), senior=()),
        "trained-tokens-without-call",
    ),
    "segment behind the end": (
        lambda good: with_facts(good, segments=((SEED, 0, 9),)),
        "generate-calls-overlap",
    ),
    "segments over each other": (
        lambda good: with_facts(good, segments=((SEED, 0, 5), (SEED, 4, 8))),
        "generate-calls-overlap",
    ),
    "trained ranges missing": (lambda good: with_facts(good, trained=()), "mask-not-seniors"),
    "unknown outside of what is trained": (
        lambda good: with_facts(good, trained=((0, 7),), unknown=((7, 8),)),
        "unknown-authors-untrained",
    ),
    "no facts": (lambda good: replace(good, facts=None), "row-without-authorship"),
    "facts of fewer tokens": (lambda good: with_facts(good, length=7), "authorship-length-differs"),
    "mask of fewer tokens": (
        lambda good: replace(good, response_mask=good.response_mask[:-1]),
        "row-field-length-differs",
    ),
    "loss mask of fewer tokens": (
        lambda good: replace(good, loss_mask=NOTHING),
        "row-field-length-differs",
    ),
    "foreign rules": (lambda good: with_facts(good, fingerprint="g"), "row-rules-differ"),
    "settings of other rules": (
        lambda good: with_facts(good, settings={**facts_of(good).settings, "schedule": "word"}),
        "row-settings-differ",
    ),
    "settings missing": (lambda good: with_facts(good, settings={}), "row-settings-differ"),
    "settings of another p": (
        lambda good: with_facts(good, settings={**facts_of(good).settings, "p": 0.4}),
        "row-settings-differ",
    ),
    "seed of a call of the same row": (
        lambda _: narrowed(
            TURNS,
            segments=((seed_of((0, 1)), 0, 2), (seed_of((0, 1)), 6, 8)),
            seed=seed_of((0, 1)),
            senior=ranges([0, 1, 0, 0, 0, 0, 0, 1]),
            trained=((0, 2), (6, 8)),
        ),
        "row-seed-repeated",
    ),
    "the same response again": (lambda _: replace(GOOD, name="Row 1"), "row-seed-repeated"),
    "another response with the same seed": (
        lambda _: replace(GOOD, name="Row 1", response_ids=GOOD.response_ids[::-1].copy()),
        "row-seed-repeated",
    ),
    "refused by the engine": (
        lambda good: replace(good, error="RequestError: no."),
        "trajectory-failed",
    ),
}


@pytest.mark.parametrize(("alter", "code"), ALTERED.values(), ids=ALTERED.keys())
def test_row_that_is_not_the_replay_of_its_own_call_bit_for_bit_stops_training(
    alter: Callable[[Row], Row], code: str
) -> None:
    check_rows([GOOD, LONG], RULES)
    with refused(code):
        check_rows([GOOD, alter(LONG)], RULES)


def test_row_that_a_sampler_repeats_and_answers_to_validation_may_repeat_seeds() -> None:
    """In verl, a sampler of the user's own may return a key twice."""
    check_rows([GOOD, LONG, GOOD], RULES)
    check_validation_rows([GOOD, replace(GOOD, name="Row 1")], "team", RULES)
    with refused("row-seed-repeated", seed=facts_of(GOOD).seed, row="Row 2", other="Row 0"):
        check_rows([GOOD, GOOD, replace(GOOD, name="Row 2")], RULES)


def test_responses_of_which_nothing_is_trained_have_their_seeds_too() -> None:
    masked = narrowed(GOOD, segments=(), senior=(), trained=())
    check_rows([LONG, masked], RULES)
    with refused("row-seed-repeated"):
        check_rows([LONG, masked, replace(masked, name="Row 1")], RULES)


@pytest.mark.parametrize("place", range(8))
def test_every_bit_of_every_mask_counts(place: int) -> None:
    altered = ranges(flipped(facts_of(TURNS).authorship, place))
    for change in (with_facts, narrowed):
        with refused("authorship-replay-differs", row="Row 0", count=1, position=place):
            check_rows([change(TURNS, senior=altered)], RULES)
    for name in ("response_mask", "loss_mask"):
        with refused("mask-not-seniors", row="Row 0", name=name, position=place):
            check_rows([replace(TURNS, **{name: flipped(getattr(TURNS, name), place)})], RULES)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (replace(GOOD, response_mask=~GOOD.response_mask), "mask-changed-after-check"),
        (replace(GOOD, loss_mask=~GOOD.response_mask), "mask-changed-after-check"),
        (replace(GOOD, response_mask=GOOD.response_mask[:-1]), "row-length-changed"),
        (replace(GOOD, name="Row of another batch"), "row-not-checked"),
        (replace(GOOD, response_mask=NOTHING), "mask-changed-after-check"),
    ],
)
def test_update_uses_the_masks_that_were_admitted(changed: Row, code: str) -> None:
    admitted = AdmittedBatch([GOOD, replace(TURNS, name="Row 1")])
    padding = replace(row([0, 0, 0, 0]), name="Row of padding", loss_mask=None)
    rows = [replace(TURNS, name="Row 1"), padding, GOOD]
    admitted.check(rows, False)
    with refused(code):
        admitted.check([*rows, changed], False)


def test_update_may_leave_out_what_rejection_sampling_rejects_and_add_nothing() -> None:
    admitted = AdmittedBatch([GOOD])
    admitted.check([replace(GOOD, response_mask=NOTHING)], True)
    with refused("mask-changed-after-check", count=2):
        admitted.check([replace(GOOD, response_mask=~GOOD.response_mask)], True)


def test_batch_without_anything_to_train_stops() -> None:
    without = [row([0, 0], group="h"), row([0], group="h")]
    check_rows([GOOD, *without], RULES)
    masked = narrowed(GOOD, trained=())  # the senior's, but the loop masks it
    for rows in (without, [masked, *without]):
        with refused("batch-without-senior-tokens", responses=len(rows)):
            check_rows(rows, RULES)
    with refused("batch-empty"):
        check_rows([], RULES)


UNKNOWN = narrowed(LONG, trained=((0, 7),), unknown=((2, 4),))
"""Of seven tokens that its loop would train, the authors of two are unknown."""


def test_tokens_of_unknown_author_are_in_no_mask() -> None:
    rules = rules_with(max_unknown_share=0.5)
    check_rows([GOOD, UNKNOWN], rules)
    for place in (2, 3):
        for name in ("response_mask", "loss_mask"):
            altered = replace(UNKNOWN, **{name: flipped(getattr(UNKNOWN, name), place)})
            with refused("mask-not-seniors", row="Row 0", name=name):
                check_rows([GOOD, altered], rules)
    # A hop that loses what is unknown, but not the masks that were made with it.
    with refused("mask-not-seniors", row="Row 0"):
        check_rows([GOOD, with_facts(UNKNOWN, unknown=((2, 3),))], rules)


@pytest.mark.parametrize(("share", "passes"), [(0.19, True), (0.17, False)])
def test_batch_with_too_many_tokens_of_unknown_author_stops_training(
    share: float, passes: bool
) -> None:
    """Two of the eleven that the loops would train."""
    if passes:
        check_rows([GOOD, UNKNOWN], rules_with(max_unknown_share=share))
    else:
        with refused("unknown-authors-too-many", unknown=2, trained=11):
            check_rows([GOOD, UNKNOWN], rules_with(max_unknown_share=share))


def test_rows_that_come_singly_are_judged_by_the_updates_that_they_are_trained_in() -> None:
    """Two of eleven tokens are unknown, whichever row comes first, and 2 of 7 in a later update."""
    second = replace(GOOD, facts=None)
    for rows in ([GOOD, UNKNOWN], [UNKNOWN, GOOD]):
        checks = RowChecks(rules_with(max_unknown_share=0.19))
        for one in rows:
            checks.check(one, batch=2)
        with refused("row-seed-repeated"):
            checks.check(rows[0], batch=2)
        with refused("row-without-authorship"):
            checks.check(second, batch=2)
        checks = RowChecks(rules_with(max_unknown_share=0.17))
        checks.check(rows[0], batch=2)
        with refused("unknown-authors-too-many", unknown=2, trained=11):
            checks.check(rows[1], batch=2)
    checks = RowChecks(rules_with(max_unknown_share=0.19))
    checks.check(GOOD, batch=1)
    with refused("unknown-authors-too-many", unknown=2, trained=7):
        checks.check(UNKNOWN, batch=1)


def test_validation_rows_are_whose_they_should_be() -> None:
    alone = replace(GOOD, facts=None)
    check_validation_rows([GOOD, row([0, 0], "h")], "team", RULES)
    check_validation_rows([alone], "senior", RULES)
    with refused("row-without-authorship"):
        check_validation_rows([GOOD, alone], "team", RULES)
    untrained = narrowed(GOOD, segments=(), senior=(), trained=())
    for of_the_team in (GOOD, untrained):
        with refused("validation-written-by-team"):
            check_validation_rows([alone, of_the_team], "senior", RULES)
    for answerer in SEVERAL["all"]:
        with refused("trajectory-failed", error="RequestError: no."):
            check_validation_rows([replace(alone, error="RequestError: no.")], answerer, RULES)


def test_validation_by_the_junior_has_no_token_of_the_senior_and_the_juniors_rule() -> None:
    rule = rule_of(RULES, "junior", 0)
    assert rule is not None
    of_rule = {"fingerprint": rule.fingerprint, "settings": rule.settings()}
    check_validation_rows([row([0, 0, 0], **of_rule)], "junior", RULES)
    with refused("validation-not-juniors"):
        check_validation_rows([row([0, 1, 0], **of_rule)], "junior", RULES)
    with refused("row-rules-differ"):
        check_validation_rows([row([0, 0, 0])], "junior", RULES)
    with refused("row-rules-differ"):
        check_validation_rows([row([0, 0, 0], **of_rule)], "team", RULES)
    with refused("row-without-authorship"):
        check_validation_rows([replace(GOOD, facts=None)], "junior", RULES)


def test_dumps_replay_and_count_tokens_of_unknown_author_apart(tmp_path: Path) -> None:
    """Also that of a response of which its loop masked all: it has no segment, and no author."""
    masked = narrowed(GOOD, segments=(), senior=(), trained=())
    file = tmp_path / "dump.jsonl"
    file.write_text("".join(json.dumps(one.dump()) + "\n" for one in (UNKNOWN, UNKNOWN, masked)))
    assert json.loads(file.read_text().splitlines()[0])["tandem_unknown"] == [[2, 4]]
    audit = Audit(RuleBook(RULES.vocabulary, {}), 10, len(RULES.vocabulary))
    audit.add(list(read_rollouts(file)))
    assert (audit.differing_rows, audit.rows) == (0, 3)
    assert (audit.tokens, audit.unknown_tokens, audit.senior_tokens) == (12, 4, 8)
    assert (audit.spans, audit.handoffs) == (10, 6)  # 1 0 . . 1 0 1 1
    metrics = batch_metrics([UNKNOWN, UNKNOWN])
    assert metrics["tandem/senior_share"] == 8 / 12
    assert metrics["tandem/spans_per_response"] == 5
    assert metrics["tandem/handoffs_per_response"] == 3
    assert metrics["tandem/junior_spans_per_response"] == 2
    assert metrics["tandem/tokens_per_junior_span"] == 1
    assert metrics["tandem/tokens_of_unknown_author"] == 4


def test_dump_of_a_response_by_the_senior_alone_has_the_same_columns() -> None:
    alone = replace(GOOD, facts=None).dump()
    assert list(alone) == list(GOOD.dump())
    assert {name for name, value in alone.items() if value is not None} == {
        "response_ids",
        "tandem_segments",
    }
