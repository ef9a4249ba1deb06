"""A schedule that depends on the trainer's step: filled in, sent, recorded, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from refused import refused

from tandem_plugin import (
    TandemConfig,
    TandemRequest,
    TandemRules,
    Vocabulary,
    hookimpl,
)
from tandem_plugin.plugins import using_plugins
from tandem_plugin.schedules.parameters import check_index
from tandem_plugin.training.authorship_wire import FACTS, Facts
from tandem_plugin.training.refusals import check_settings
from tandem_plugin.training.rows import Row
from tandem_plugin.training.run import TandemRun, announcement
from tandem_verl.agent_loop import ROW, make_trajectory, narrow

PIECES = tuple("Ġa" if i % 3 == 0 else "b" for i in range(24))


@dataclass(frozen=True)
class Warming:
    """p is 0 at step 0 and 1 from step 4 on."""

    name: ClassVar[str] = "warming"
    boundaries: ClassVar[str] = "every"
    training_step: int = 0

    def __post_init__(self) -> None:
        check_index("training_step", self.training_step)

    def start(self, u: Any) -> Any:
        return u < self.training_step / 4

    def advance(self, author: Any, run: Any, is_boundary: Any, u: Any) -> tuple[Any, Any]:
        return u < self.training_step / 4, run * 0


class Plugin:
    @hookimpl
    def register_schedules(self, register: Callable[[Any], None]) -> None:
        register(Warming)


@pytest.fixture(autouse=True)
def plugged() -> Iterator[None]:
    with using_plugins(Plugin()):
        yield


def config(**settings: Any) -> TandemConfig:
    return TandemConfig.from_mapping({"schedule": "warming", **settings})


def rules(**settings: Any) -> TandemRules:
    return TandemRules(config(**settings), Vocabulary(PIECES, "a test"))


def row(step: int, seed: int = 3, **fields: Any) -> Row:
    rule = rules().for_step(step)
    ids = np.arange(20)
    senior = rule.replay(ids.tolist(), seed).senior
    whole = Row(f"Row of step {step}", "g", ids, senior.copy(), senior, seed, rule.fingerprint)
    segments = [[seed, 0, len(ids)]]
    trained = np.ones(len(ids), dtype=bool)
    return replace(whole, settings=rule.settings(), segments=segments, trained=trained, **fields)


@pytest.mark.parametrize("validate", [False, True])
def test_request_and_record_carry_the_trainers_step(validate: bool) -> None:
    sample = {ROW: 3, "session_id": 1}
    for step in (1, 3):
        trajectory = {"step": step, "rollout_n": 0, "validate": validate}
        made = make_trajectory(rules(validation="team"), trajectory, sample)
        wire = made.call([1]).request
        assert isinstance(wire, dict)
        assert wire["training_step"] == step
        request = TandemRequest.parse(wire)
        assert request is not None
        assert request.fingerprint == rules().for_step(step).fingerprint
        # The engine has the settings of the run, which do not know the step.
        chosen = rules(require=True).for_request(wire)
        assert chosen is not None
        assert chosen.rule.schedule == Warming(step)
        output = SimpleNamespace(prompt_ids=[1], response_ids=[], response_mask=[], extra_fields={})
        output.response_logprobs = None
        narrow(output, made)
        facts = Facts.from_wire(output.extra_fields[FACTS])
        assert facts is not None
        assert facts.settings["training_step"] == step
        assert facts.fingerprint == rules().for_step(step).fingerprint


def test_rows_of_a_step_are_checked_with_the_rule_of_that_step() -> None:
    run = TandemRun(config(), rules())
    assert run.admit([row(4), row(2)])["tandem/responses_without_senior"] == 0
    assert run.admit([row(4), row(0)])["tandem/responses_without_senior"] == 1
    for settings in (None, {}, {"schedule": "warming", "training_step": 3}):
        with refused("TP408"):
            run.admit([replace(row(4), settings=settings)])


def test_step_of_a_call_with_its_own_schedule_is_the_trainers_unless_it_gives_one() -> None:
    rules = TandemRules(TandemConfig(schedule="token"), Vocabulary(PIECES, "a test"))
    for given, step in (({}, 3), ({"training_step": 1}, 1)):
        assert rules.for_call({"schedule": "warming", **given}, 3).schedule == Warming(step)


def test_step_is_the_trainers_and_no_setting() -> None:
    said = announcement(config(), rules().default)
    assert "schedule=warming training_step=(the trainer's) boundaries=every" in said
    check_settings(config())
    with refused("TP454", value=3):
        check_settings(config(training_step=3))
