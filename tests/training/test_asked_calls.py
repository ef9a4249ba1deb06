"""Calls for which an agent loop asks a schedule of its own, from the request to the checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_plugin import (
    TandemConfig,
    TandemRequest,
    TandemRules,
    Vocabulary,
)
from tandem_plugin.training.authorship_wire import Facts
from tandem_plugin.training.checks import check_rows
from tandem_plugin.training.rows import Row, row_of
from tandem_plugin.training.trajectory import Trajectory

PIECES = tuple("Ġa" if i % 3 == 0 else "b" for i in range(24))
VOCABULARY = Vocabulary(PIECES, "a test")
RULES = TandemRules(TandemConfig.from_mapping({"schedule": "token", "p": 0.5}), VOCABULARY)
STEP = 3

JUNIOR = {"schedule": "junior"}
HANDOVER = {"schedule": "handover", "first": "junior", "after": 2}


def played(turns: list[tuple[Any, list[int]]], rules: TandemRules = RULES) -> tuple[Facts, Row]:
    """The facts of a game of turns (what is asked, tokens), and its row; feedback in between."""
    trajectory = Trajectory(
        rules.for_step(STEP), lambda call: 50 + call, partial(rules.for_call, training_step=STEP)
    )
    text, mask = [1, 2], []
    for asked, tokens in turns:
        trajectory.call(text, asked).returned(tokens)
        text, mask = [*text, *tokens, 23], [*mask, *[1] * len(tokens), 0]
    facts = trajectory.facts(text[:2], text[2:], mask)
    assert facts is not None
    return facts, row(facts, text[2:])


def row(facts: Facts, response_ids: list[int]) -> Row:
    return row_of(
        facts,
        name="Response 0",
        group="a prompt",
        response_ids=np.array(response_ids, dtype=np.int64),
        response_mask=facts.mask,
    )


def test_calls_say_what_was_asked_and_the_rest_what_the_run_says():
    rule_of = partial(RULES.for_call, training_step=STEP)
    trajectory = Trajectory(RULES.default, lambda call: 50 + call, rule_of)
    asked = [None, JUNIOR, "off", {"schedule": "word", "p": 0.25}]
    requests = [TandemRequest.parse(trajectory.call([1], one).request) for one in asked]
    assert [(r.seed, r.schedule) for r in requests if r] == [
        (50, "token"), (51, "junior"), (52, "solo"), (53, "word"),
    ]  # fmt: skip
    last = requests[-1]
    assert last is not None
    assert last.parameters == {"p": 0.25, "cap": 32}
    assert last.fingerprint == RULES.for_call(asked[-1], 0).fingerprint != RULES.fingerprint


def test_training_step_of_a_schedule_that_has_one_is_the_trainers():
    annealed = {**HANDOVER, "after": 8, "steps": 4}
    assert RULES.for_call(annealed, STEP).settings()["training_step"] == STEP
    assert RULES.for_call({**annealed, "training_step": 1}, STEP).settings()["training_step"] == 1
    facts, made = played([(annealed, [5] * 9), (None, [7] * 8)])
    assert facts.mask[:10].astype(int).tolist() == [0] * 2 + [1] * 7 + [0]  # 8 - 8 * 3 / 4
    check_rows([made], RULES)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"schedule": "junior", "seed": 3}, "TP039"),
        ({"schedule": "junior", "prompt_length": 3}, "TP039"),
        ({"p": 0.5}, "TP038"),
        ("junior", "TP038"),
        ({}, "TP038"),
        ({"schedule": 3}, "TP038"),
        ({"schedule": "leap"}, "TP117"),
        ({"schedule": "word", "p": 7}, "TP145"),
        ({"schedule": "step"}, "TP206"),
    ],
)
def test_call_that_cannot_be_honoured_is_refused(asked: Any, code: str):
    trajectory = Trajectory(
        RULES.default, lambda call: 50, partial(RULES.for_call, training_step=0)
    )
    with refused(code):
        trajectory.call([1], asked)


def test_trainer_whose_loops_cannot_ask_says_so():
    with refused("TP455"):
        Trajectory(RULES.default, lambda call: 50).call([1], JUNIOR)


FOREIGN = ("0" * 16, JUNIOR)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda asked: (), "TP411"),
        (lambda asked: asked[::-1], "TP411"),
        (lambda asked: asked[:1], "TP445"),
        (lambda asked: (None, FOREIGN), "TP446"),
        (lambda asked: (None, (asked[1][0], {"schedule": "solo"})), "TP446"),
    ],
    ids=["forgotten", "swapped", "cut", "of other rules", "misnamed"],
)
def test_spoiled_row_is_refused(spoil: Callable[[Any], Any], code: str):
    _, made = played([(None, [5, 6, 7, 8, 9, 10, 11, 12]), (JUNIOR, [3, 4, 5, 6, 7, 8, 9, 10])])
    check_rows([made], RULES)
    with refused(code):
        check_rows([replace(made, asked=spoil(made.asked))], RULES)
