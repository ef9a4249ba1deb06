"""The rule by which greedy responses of a GPU are judged."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

SUPPORT = Path(__file__).parents[1] / "integration_tests"


@pytest.fixture
def parity(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SUPPORT))
    return importlib.import_module("support.gpu.parity")


SENIOR = torch.tensor([[5.0, 4.9, 0.0], [0.0, 1.0, 4.0]])
JUNIOR = torch.tensor([[0.0, 1.0, 5.0], [6.0, 0.0, 0.0]])


def judged(parity: Any, ids: list[int], authors: list[bool], rounding: float) -> Any:
    exact = {True: SENIOR, False: JUNIOR}
    rounded = {True: SENIOR + rounding, False: JUNIOR}
    return parity.verdict([parity.measured("one", ids, authors, exact, rounded)])


def test_tokens_that_their_authors_find_likeliest_hold(parity: Any) -> None:
    found = judged(parity, [0, 0], [True, False], 0.0)
    assert found.passed
    assert (found.tokens, found.likeliest, found.largest, found.telling) == (2, 2, 0.0, 2)
    assert found.allowed == parity.FLOOR


def test_nearly_as_likely_a_token_holds_within_four_measured_roundings_alone(parity: Any) -> None:
    for rounding, passed in ((0.024, False), (0.026, True)):
        found = judged(parity, [1, 0], [True, False], rounding)
        assert found.passed is passed
        assert found.largest == pytest.approx(0.1, abs=1e-6)
        assert found.allowed == pytest.approx(4 * rounding, abs=1e-6)
        assert found.wrong == (() if passed else ("one",))


def test_a_token_of_the_other_author_does_not_hold(parity: Any) -> None:
    found = judged(parity, [2, 0], [True, False], 0.026)
    assert not found.passed
    assert "Not allowed in 1: one" in found.sentence()


def test_responses_that_either_model_could_have_written_show_nothing(parity: Any) -> None:
    same = {True: SENIOR, False: SENIOR}
    found = parity.verdict([parity.measured("one", [0, 2], [True, False], same, same)])
    assert found.likeliest == found.tokens == 2
    assert not found.passed
    assert "too few to tell the models apart" in found.sentence()


def test_no_response_shows_nothing(parity: Any) -> None:
    assert not parity.verdict([]).passed


def test_weights_are_rounded_as_the_engine_rounds_them(parity: Any, tmp_path: Path) -> None:
    from support.models import make_model
    from support.reference import Reference

    one = make_model(tmp_path / "one", seed=0)
    plain = Reference(one, one).both([5, 6], [7, 8])[True]
    rounded = Reference(one, one, weights=torch.bfloat16)
    parameters = list(rounded.models[True].parameters())
    assert all(torch.equal(p, p.bfloat16().float()) for p in parameters)
    assert 0 < float((rounded.both([5, 6], [7, 8])[True] - plain).abs().max()) < 1
