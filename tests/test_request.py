from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tandem_plugin import RequestError, TandemConfig, TandemRequest, TandemRules, Vocabulary
from tandem_plugin.draws import MAX_SEED
from tandem_plugin.request import MAX_WIRE_LENGTH


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


def test_parsing_leaves_the_callers_mapping_alone():
    wire = {"seed": 7, "schedule": "word", "fingerprint": "x"}
    TandemRequest.parse(wire)
    assert wire == {"seed": 7, "schedule": "word", "fingerprint": "x"}


@pytest.mark.parametrize(
    ("wire", "said"),
    [
        ({}, "asks for tandem without a seed. Give tandem={'seed': ...}"),
        ({"schedule": "word"}, "asks for tandem without a seed"),
        ({"seed": None}, "seed=None is not an integer. Give one from 0 to"),
        ({"seed": -1}, "seed=-1 is out of range. Give an integer from 0 to"),
        ({"seed": 2**63}, f"seed={2**63} is out of range. Give an integer from 0 to"),
        ({"seed": 1.0}, "seed=1.0 is not an integer"),
        ({"seed": True}, "seed=True is not an integer"),
        ({"seed": 1, "schedule": 3}, "schedule=3 is not the name of a schedule"),
        ({"seed": 1, "schedule": ""}, "schedule='' is not the name of a schedule"),
        ({"seed": 1, "schedule": " "}, "schedule=' ' is not the name of a schedule"),
        ({"seed": 1, "fingerprint": 3}, "fingerprint=3 is not a string of hexadecimal digits"),
        ({"seed": 1, "prompt_length": -1}, "prompt_length=-1 is not a number of tokens. Give an"),
        ({"seed": 1, "prompt_length": 2**31}, "an integer from 0 to 2147483647, how many of"),
        ({"seed": 1, "prompt_length": 10**5000}, "is not a number of tokens"),
        ({"seed": 10**5000}, "seed=a int is out of range. Give an integer"),
        ({"seed": -(10**5000)}, "is out of range"),
        ({"seed": [10**5000]}, "seed=a list is not an integer"),
        ({"seed": 1, "schedule": 10**5000}, "schedule=a int is not the name of a schedule"),
        ({"seed": 1, "fingerprint": 10**5000}, "fingerprint=a int is not a string"),
        pytest.param(10**5000, "tandem=a int is not a request", id="huge"),
        ([10**5000], "tandem=a list is not a request"),
        ({"seed": 1, "junior": 7}, "junior=7 is not the name of a junior"),
        ({"seed": 1, "prompt_length": 2.0}, "prompt_length=2.0 is not a number of tokens"),
        ({"seed": 1, "prompt_length": True}, "prompt_length=True is not a number of tokens"),
        ({"seed": 1, "prompt_length": "2"}, "prompt_length='2' is not a number of tokens"),
        ({"seed": 1, "prompt_length": [2]}, "prompt_length=[2] is not a number of tokens"),
        ("on", "tandem='on' is not a request: as JSON it cannot"),
        (7, "tandem=7 is not a request"),
        ([("seed", 7)], "is not a request"),
        (False, "tandem=False is not a request"),
    ],
)
def test_wrong_request_is_refused_with_field_value_and_what_is_allowed(wire: object, said: str):
    with pytest.raises(RequestError) as refused:
        TandemRequest.parse(wire)
    assert said in str(refused.value)


def test_json_in_a_string_is_the_same_request():
    wire = {"seed": MAX_SEED, "schedule": "word", "p": 0.3, "cap": 4, "fingerprint": "x"}
    wire |= {"junior": "a/junior", "prompt_length": 3}
    request = TandemRequest.parse(wire)
    assert request is not None
    assert TandemRequest.parse(json.dumps(wire)) == request
    assert TandemRequest.parse(request.to_json()) == request
    assert TandemRequest.parse('{"schedule": "off"}') is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "as JSON it cannot be read"),
        ("7", "tandem=7 is not a request"),
        ("null", "tandem=None is not a request"),
        ('"off"', "tandem='off' is not a request"),
        ("[1]", "is not a request"),
        ('{"seed": 1} x', "as JSON it cannot be read (Extra data"),
        ('{"seed": NaN}', "NaN is not a number of JSON"),
        ('{"seed": 1, "p": Infinity}', "Infinity is not a number of JSON"),
        ('{"seed": 1, "seed": 2}', "it says a field twice"),
        ('{"seed": 1.0}', "seed=1.0 is not an integer"),
        ('{"seed": "7"}', "seed='7' is not an integer"),
        ('{"seed": ' + "9" * 4000 + "}", "is out of range"),
        ("[" * 4000, "as JSON it cannot be read"),
        ('{"a":' * 800, "as JSON it cannot be read"),
        ("x" * (MAX_WIRE_LENGTH + 1), "a text of 4097 characters; a request has at most 4096"),
        ("\ud800\u0000", "as JSON it cannot be read"),
        ('{"schedule": ["off"], "seed": 1}', "is not the name of a schedule"),
    ],
)
def test_hostile_text_is_refused_with_a_bounded_sentence(text: str, said: str):
    with pytest.raises(RequestError) as refused:
        TandemRequest.parse(text)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 2 * MAX_WIRE_LENGTH


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
