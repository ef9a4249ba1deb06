"""Whose turn a validation prompt is; names, dumps and draws are those of the real trainer's run."""

from __future__ import annotations

from typing import Any

import pytest

from tandem_plugin import ConfigError, EngineError, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.validation import ANSWERER
from tandem_verl.agent_loop import ROW, make_trajectory
from tandem_verl.trainer import AddressedPrompts, TrainerInTandem

LETTERS = {("Ġ" if i % 3 == 0 else "") + chr(97 + i): i for i in range(24)}
PROMPTS = [{"raw_prompt": ["a", "b"]}, {"raw_prompt": ["c"]}]


class Loader(list[Any]):
    """verl's loader of validation prompts."""

    dataset = "the data set"


def test_trainer_that_merges_validations_is_refused() -> None:
    trainer = TrainerInTandem()
    with pytest.raises(EngineError, match="merges the validations"):
        trainer._validate(merged=True)


def test_prompt_that_does_not_say_whose_turn_it_is_is_refused_under_both() -> None:
    config = TandemConfig.from_mapping({"validation": "both"})
    rules = TandemRules(config, Vocabulary(tuple(LETTERS), "a test"))
    trajectory = {"step": 3, "rollout_n": 0, "validate": True}
    with pytest.raises(ConfigError, match="without saying who is to answer"):
        make_trajectory(rules, trajectory, {ROW: 0, "session_id": 0})
    for answerer in ("senior", "team"):
        sample = {ROW: 0, "session_id": 0, ANSWERER: answerer}
        made = make_trajectory(rules, trajectory, sample)
        assert (made.rule is not None) is (answerer == "team")
    assert make_trajectory(rules, trajectory | {"validate": False}, {ROW: 0}).rule


def test_addressed_prompts_are_otherwise_verls_own() -> None:
    prompts = AddressedPrompts(Loader(PROMPTS), "team")
    assert (len(prompts), prompts.dataset) == (2, "the data set")
    assert [batch["raw_prompt"] for batch in prompts] == [["a", "b"], ["c"]]
    assert PROMPTS[0].keys() == {"raw_prompt"}
