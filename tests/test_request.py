from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import RequestError, TandemConfig, TandemRequest, TandemRules, Vocabulary
from tandem_plugin._draws import MAX_SEED
from tandem_plugin.request import MAX_WIRE_LENGTH

HUGE = 10**5000
"""An integer that Python does not print."""


@pytest.mark.parametrize(
    "value", [None, "off", {"schedule": "off"}, {"schedule": "off", "seed": 1}]
)
def test_nothing_or_off_means_that_the_senior_answers_alone(value: object):
    assert TandemRequest.parse(value) is None


@pytest.mark.parametrize(
    "wire",
    [
        {"seed": 0},
        {"seed": MAX_SEED, "fingerprint": "0123456789abcdef"},
        {"seed": 7, "schedule": "word", "p": 0.3, "cap": 4},
        {"seed": 7, "p": 0.3},
        {"seed": 7, "prompt_length": 0},
        {"seed": 7, "p": 0.3, "prompt_length": 2**31 - 1, "fingerprint": "0"},
    ],
)
def test_wire_form_survives_a_round_trip(wire: dict[str, object]):
    request = TandemRequest.parse(wire)
    assert request is not None
    assert request.to_wire() == wire
    assert TandemRequest.parse(request.to_wire()) == request


@pytest.mark.parametrize(
    ("code", "several"),
    [
        ("request-without-seed", [{}, {"schedule": "word"}]),
        ("seed-not-integer", [{"seed": seed} for seed in (None, 1.0, True, [HUGE])]),
        ("seed-out-of-range", [{"seed": seed} for seed in (-1, 2**63, HUGE, -HUGE)]),
        (
            "request-schedule-not-name",
            [{"seed": 1, "schedule": name} for name in (3, "", " ", HUGE)],
        ),
        (
            "request-fingerprint-not-hex",
            [{"seed": 1, "fingerprint": 3}, {"seed": 1, "fingerprint": HUGE}],
        ),
        (
            "prompt-length-not-count",
            [{"seed": 1, "prompt_length": n} for n in (-1, 2**31, HUGE, 2.0, True, "2")],
        ),
        ("request-tandem-invalid", [HUGE, [HUGE], 7, [("seed", 7)], False]),
        ("request-tandem-not-json", ["on"]),
        (
            "request-off-with-parameters",
            [
                {"schedule": "off", "junk": 1},
                {"schedule": "off", "seed": 1, "p": 0.5},
                '{"schedule": "off", "Seed": 1}',
            ],
        ),
        ("seed-not-integer", [{"schedule": "off", "seed": "x"}]),
        ("request-fingerprint-not-hex", [{"schedule": "off", "fingerprint": 7}]),
        ("prompt-length-not-count", [{"schedule": "off", "prompt_length": -1}]),
    ],
)
def test_wrong_request_is_refused(code: str, several: list[object]):
    for wire in several:
        with refused(code):
            TandemRequest.parse(wire)


def test_json_in_a_string_is_the_same_request():
    wire = {"seed": MAX_SEED, "schedule": "word", "p": 0.3, "cap": 4, "fingerprint": "x"}
    wire |= {"prompt_length": 3}
    request = TandemRequest.parse(wire)
    assert request is not None
    assert TandemRequest.parse(json.dumps(wire)) == request
    assert TandemRequest.parse(json.dumps(request.to_wire())) == request
    assert TandemRequest.parse('{"schedule": "off"}') is None


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        (
            "request-tandem-not-json",
            ["", '{"seed": 1} x', "[" * 4000, '{"a":' * 800, "\ud800\u0000"],
        ),
        ("request-tandem-not-json", ['{"seed": 1, "seed": 2}']),
        ("request-tandem-invalid", ["7", "null", '"off"', "[1]"]),
        ("seed-not-integer", ['{"seed": 1.0}', '{"seed": "7"}', '{"seed": NaN}']),
        ("seed-out-of-range", ['{"seed": ' + "9" * 4000 + "}"]),
        ("request-tandem-too-long", ["x" * (MAX_WIRE_LENGTH + 1)]),
        ("request-schedule-not-name", ['{"schedule": ["off"], "seed": 1}']),
    ],
)
def test_hostile_text_is_refused_with_a_bounded_sentence(code: str, texts: list[str]):
    for text in texts:
        with refused(code) as caught:
            TandemRequest.parse(text)
        assert len(str(caught.value)) < 2 * MAX_WIRE_LENGTH


@given(st.text(max_size=60) | st.text(alphabet='{}[]":, 0123456789seedof.-', max_size=40))
def test_any_text_is_read_or_refused(text: str):
    with contextlib.suppress(RequestError):
        TandemRequest.parse(text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    )
)
def test_rules_honour_or_refuse_whatever_a_client_sends(byte_level: Vocabulary, value: object):
    rules = TandemRules(TandemConfig(), byte_level)
    asked = {"seed": 1, "schedule": value, "p": value, "cap": value, "first": value}
    longer = {"seed": 1, "prompt_length": value}
    for sent in (value, asked, json.dumps(value), {"seed": 1, "p": value}, longer):
        with contextlib.suppress(RequestError):
            found = rules.for_request(sent)
            if found is not None:
                found.prefix([1, 2, 3])
