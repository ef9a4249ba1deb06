"""Many random agent loops: no token is trained under a wrong author, and none stops needlessly.

``python tests/training/random_loops.py 20000`` counts more of them.
"""

from __future__ import annotations

import random

import pytest
from random_loops import judged, random_loop

from tandem_plugin.training import response_authorship

LOOPS = 600


def test_trained_tokens_have_the_author_that_wrote_them_and_unknown_ones_are_left_out() -> None:
    outcomes = []
    for number in range(LOOPS):
        rng = random.Random(number)
        outcomes.append(judged(random_loop(rng), 1000 * number, rng.shuffle))
    assert sum(one.wrong for one in outcomes) == 0
    assert sum(one.needless for one in outcomes) == 0
    assert [one.stopped for one in outcomes] == [one.stopped_rightly for one in outcomes]
    assert sum(one.unknown > 0 for one in outcomes) > LOOPS / 10
    assert sum(one.unknown == 0 for one in outcomes) > LOOPS / 10


def test_loops_would_show_an_author_that_was_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_authorship, "_unknown", lambda trained, parts: trained & False)
    wrong = 0
    for number in range(LOOPS // 6):
        rng = random.Random(number)
        wrong += judged(random_loop(rng), 1000 * number, rng.shuffle).wrong
    assert wrong > 0
