from __future__ import annotations

import pytest
from refused import refused

from tandem_plugin import (
    RequestError,
    TandemConfig,
    TandemRules,
    Vocabulary,
    make_schedule,
)
from tandem_plugin.rules import ResolvedRequest

TOKENS = [0, 2, 1, 3, 0, 0, 6, 5, 2, 1] * 5


def rules_of(vocabulary: Vocabulary, **settings: object) -> TandemRules:
    return TandemRules(TandemConfig.from_mapping(settings), vocabulary)


def test_request_of_a_rule_is_honoured_by_equal_rules(byte_level: Vocabulary):
    sender, engine = rules_of(byte_level, p=0.3), rules_of(byte_level, p=0.3)
    found = engine.for_request(sender.default.request(7).to_wire())
    assert found is not None
    rule = found.rule
    assert found.seed == 7
    assert rule.fingerprint == sender.fingerprint == engine.fingerprint
    assert rule.replay(TOKENS, 7) == sender.default.replay(TOKENS, 7)


def test_request_may_change_one_parameter_of_the_configured_schedule(byte_level: Vocabulary):
    rules = rules_of(byte_level, p=0.3, cap=3)
    found = rules.for_request({"seed": 1, "p": 0.9})
    assert found is not None
    assert found.rule.schedule == make_schedule("word", {"p": 0.9, "cap": 3})


def test_request_for_another_schedule_starts_from_its_defaults(byte_level: Vocabulary):
    rules = rules_of(byte_level, p=0.3)
    found = rules.for_request({"seed": 1, "schedule": "token"})
    assert found is not None
    assert found.rule.schedule == make_schedule("token", {"p": 0.5})
    assert found.rule.boundaries.resolver == "every"


def test_configured_boundaries_hold_for_every_schedule(byte_level: Vocabulary):
    rules = rules_of(byte_level, boundaries="every")
    assert rules.default.boundaries.count == len(byte_level)
    assert rules.for_schedule(make_schedule("step", {})).boundaries.count == len(byte_level)


@pytest.mark.parametrize("value", [None, "off", {"schedule": "off"}])
def test_request_without_tandem_is_the_seniors_alone(byte_level: Vocabulary, value: object):
    assert rules_of(byte_level).for_request(value) is None


def test_engine_that_requires_tandem_refuses_silence_but_takes_off(byte_level: Vocabulary):
    rules = rules_of(byte_level, require=True)
    with refused("request-without-tandem"):
        rules.for_request(None)
    assert rules.for_request("off") is None
    assert rules.for_request({"seed": 3}) is not None


@pytest.mark.parametrize(
    "settings", [{"p": 0.4}, {"cap": 31}, {"boundaries": "every"}, {"schedule": "token"}]
)
def test_fingerprint_of_other_rules_is_refused(byte_level: Vocabulary, settings: dict[str, object]):
    wire = {"seed": 7, "fingerprint": rules_of(byte_level, **settings).fingerprint}
    rules = rules_of(byte_level)
    with refused(
        "request-rules-differ", fingerprint=wire["fingerprint"], expected=rules.fingerprint
    ):
        rules.for_request(wire)


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("parameter-not-probability", {"p": 2}),
        ("parameter-not-count", {"cap": 0}),
        ("plugin-name-unknown", {"schedule": "words"}),
        ("schedule-parameter-unknown", {"boundaries": "every"}),
        ("seed-out-of-range", {"seed": -1}),
    ],
)
def test_wrong_request_is_refused_as_a_request(
    byte_level: Vocabulary, code: str, wrong: dict[str, object]
):
    with pytest.raises(RequestError) as caught:
        rules_of(byte_level).for_request({"seed": 1, **wrong})
    assert caught.value.code == code


def test_vocabulary_without_words_is_refused_at_once_unless_the_schedule_needs_none():
    vocabulary = Vocabulary(("a", "b"), "no-spaces")
    with refused("tokenizer-without-word-marker", source="no-spaces"):
        rules_of(vocabulary)
    assert rules_of(vocabulary, schedule="token").default.boundaries.count == 2


def test_tokens_after_the_prompt_are_how_the_response_began(byte_level: Vocabulary):
    rules = rules_of(byte_level)
    resolved = rules.for_request(rules.default.request(7, prompt_length=2).to_wire())
    assert resolved == ResolvedRequest(rules.default, 7, 2)
    assert resolved.prefix([4, 5, 6, 7]) == [6, 7]
    assert resolved.prefix([4, 5]) == []
    assert resolved.request() == rules.default.request(7, prompt_length=2)
    with refused("prompt-length-too-large", prompt_length=2, tokens=1):
        resolved.prefix([4])
    whole = rules.for_request({"seed": 7})
    assert whole is not None
    assert whole.prefix([4, 5, 6]) == []


@pytest.mark.parametrize("cut", range(len(TOKENS) + 1))
def test_rest_of_a_response_has_the_authors_that_it_has_in_the_whole(
    byte_level: Vocabulary, cut: int
):
    rule = rules_of(byte_level, cap=2).default
    rest = rule.replay_rest(TOKENS[:cut], TOKENS[cut:], 7)
    assert rest.tolist() == rule.replay(TOKENS, 7).tolist()[cut:]


def test_request_cannot_change_which_model_samples(byte_level: Vocabulary):
    """`solo-word` marks as `word` does, in an engine where the senior samples every token."""
    word, control = rules_of(byte_level), rules_of(byte_level, schedule="solo-word")
    marked = control.default.replay(TOKENS, 3)
    assert 0 < marked.senior_share < 1
    assert marked == word.default.replay(TOKENS, 3)
    assert control.fingerprint != word.fingerprint
    for one, schedule in ((word, "solo-word"), (control, "word"), (control, "junior")):
        with refused("request-schedule-differs"):
            one.for_request({"seed": 1, "schedule": schedule})
    for one in (word, control):
        assert one.for_request({"seed": 1, "schedule": "solo"}) is not None
