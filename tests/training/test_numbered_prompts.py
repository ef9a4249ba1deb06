"""Numbers of prompts that travel with their labels, and the seeds that follow from them."""

from __future__ import annotations

from refused import refused

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.trajectory import KeyedLabel, Numbering


def test_prompts_are_numbered_across_dispatches() -> None:
    numbering = Numbering(next_prompt=10, step=2)
    labels = [*numbering.keyed(["a", "b", "c"]), *numbering.keyed(["d"])]
    assert labels == [
        KeyedLabel(label, "training", 10 + i, step=2, by_team=True)
        for i, label in enumerate("abcd")
    ]


def test_validation_is_of_the_step_that_ended_last() -> None:
    """As verl's: before training 0, behind step 3 that step."""
    for ended, numbering in ((0, Numbering()), (3, Numbering(next_prompt=12, step=4))):
        for by_team in (True, False):
            labels = numbering.validating(by_team).keyed(["a", "b"])
            assert labels == [
                KeyedLabel(label, "validation", i, step=ended, by_team=by_team)
                for i, label in enumerate("ab")
            ]


def test_trajectory_of_a_label_has_its_seeds_and_the_rule_of_who_answers() -> None:
    config = TandemConfig.from_mapping({"schedule": "solo", "seed": 9})
    rules = TandemRules(config, Vocabulary(tuple("abc"), "a test"))
    for by_team in (True, False):
        label = KeyedLabel("", "validation", 5, by_team=by_team)
        for sample in range(2):
            made = KeyedLabel.checked(label).trajectory(rules)
            assert made.seed_of_call(1) == derive_seed(9, "validation", 5, sample, 1)
            assert (made.rule is not None) is by_team


def test_label_without_a_number_is_refused() -> None:
    with refused("TP434", label="the answer"):
        KeyedLabel.checked("the answer")


def test_nothing_is_numbered_before_the_trainer_said_where_it_goes_on() -> None:
    with refused("TP435"):
        Numbering().keyed(["a"])
