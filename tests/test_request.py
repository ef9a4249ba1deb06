from __future__ import annotations

import pytest

from tandem_plugin import RequestError, TandemRequest
from tandem_plugin.draws import MAX_SEED


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
        ({"seed": None}, "seed=None is not an integer. A tandem seed is an integer from 0 to"),
        ({"seed": -1}, "seed=-1 is out of range. A tandem seed is an integer from 0 to"),
        ({"seed": 2**63}, f"seed={2**63} is out of range. A tandem seed is an integer from 0 to"),
        ({"seed": 1.0}, "seed=1.0 is not an integer"),
        ({"seed": True}, "seed=True is not an integer"),
        ({"seed": 1, "schedule": 3}, "schedule=3 is not the name of a schedule"),
        ({"seed": 1, "fingerprint": 3}, "fingerprint=3 is not a string of hexadecimal digits"),
        ("on", "tandem='on' is not a request: give {'seed': 7}"),
        (7, "tandem=7 is not a request"),
        ([("seed", 7)], "is not a request"),
        (False, "tandem=False is not a request"),
    ],
)
def test_wrong_request_is_refused_with_field_value_and_what_is_allowed(wire: object, said: str):
    with pytest.raises(RequestError) as refused:
        TandemRequest.parse(wire)
    assert said in str(refused.value)
