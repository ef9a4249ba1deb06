"""Prompt numbers on their way to the engines."""

from __future__ import annotations

from refused import refused

from tandem_openrlhf.numbering import KeyedLabel, Numbering
from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.validation import SEVERAL

VOCABULARY = Vocabulary(tuple("Ġa" if i % 3 == 0 else "b" for i in range(24)), "a test")
ANSWERERS = SEVERAL["all"]
RULES = TandemRules(TandemConfig.from_mapping({"schedule": "word", "cap": 4}), VOCABULARY)


def test_prompts_are_numbered_across_dispatches_and_validations_by_the_step_that_ended() -> None:
    with refused("trainer-resume-unknown"):  # before the trainer said where it goes on
        Numbering().keyed(["a"])
    numbering = Numbering(next_prompt=10, step=2)
    labels = [*numbering.keyed(["a", "b"]), *numbering.keyed(["c"])]
    assert labels == [KeyedLabel(label, 10 + i, 2) for i, label in enumerate("abc")]
    for answerer in ANSWERERS:
        validated = numbering.validating(answerer).keyed(["a", "b"])
        assert validated == [
            KeyedLabel(label, i, step=1, answerer=answerer) for i, label in enumerate("ab")
        ]


def test_trajectory_of_a_label_has_its_seeds_and_the_rule_of_who_answers() -> None:
    seed = RULES.config.seed
    for answerer in ANSWERERS:
        label = KeyedLabel("", 5, answerer=answerer)
        for sample in range(2):
            made = KeyedLabel.checked(label).trajectory(RULES)
            assert made.seed_of_call(1) == derive_seed(seed, "validation", 5, sample, 1)
            schedule = None if made.rule is None else made.rule.schedule.name
            assert schedule == {"senior": None, "team": "word", "junior": "junior"}[answerer]
    with refused("label-without-tandem", label="the answer"):
        KeyedLabel.checked("the answer")
