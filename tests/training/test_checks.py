"""What stops a trainer before it learns from a batch."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem_plugin import AuthorshipError, EngineError, FingerprintError
from tandem_plugin.training.checks import check_no_errors, check_rows, check_validation_rows
from tandem_plugin.training.rows import Row


def row(authorship: list[int], group: str = "g", **fields: Any) -> Row:
    senior = np.array(authorship, dtype=bool)
    whole = Row(
        name="Row 0",
        group=group,
        response_ids=np.arange(len(senior)),
        response_mask=senior.copy(),
        loss_mask=senior.copy(),
        authorship=senior,
        seed=1,
        fingerprint="f",
        passages=[[1, 0, len(senior)]],
    )
    return replace(whole, **fields)


GOOD = row([1, 0, 0, 1])
RULES: Any = SimpleNamespace(
    of=lambda settings: SimpleNamespace(fingerprint="f"), config=SimpleNamespace(lambda_jun=0.0)
)


def test_whole_batch_passes() -> None:
    check_rows([GOOD, row([0, 1, 1])], RULES)


def test_response_without_senior_passes_beside_one_that_has() -> None:
    check_rows([row([0, 0, 0]), GOOD], RULES)


def test_mask_may_be_narrower_than_the_authorship() -> None:
    check_rows([replace(GOOD, response_mask=np.array([False, False, False, True]))], RULES)


@pytest.mark.parametrize(
    ("bad", "error", "sentence"),
    [
        (replace(GOOD, authorship=None), AuthorshipError, "has no authorship"),
        (replace(GOOD, authorship=GOOD.authorship[:-1]), AuthorshipError, "3 entries of auth"),
        (replace(GOOD, response_mask=GOOD.response_mask[:-1]), AuthorshipError, "of response_mask"),
        (replace(GOOD, loss_mask=GOOD.loss_mask[:-1]), AuthorshipError, "of loss_mask"),
        (replace(GOOD, response_mask=np.ones(4, bool)), AuthorshipError, "response_mask of Row 0"),
        (replace(GOOD, loss_mask=np.ones(4, bool)), AuthorshipError, "first at position 1"),
        (replace(GOOD, fingerprint="g"), FingerprintError, "under the rules g"),
        (replace(GOOD, fingerprint=None), FingerprintError, "this run's are f"),
        (replace(GOOD, error="RequestError: no."), EngineError, "RequestError: no."),
    ],
)
def test_row_that_must_not_be_trained_on(bad: Row, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        check_rows([GOOD, bad], RULES)


def test_group_without_any_token_of_the_seniors_stops_training() -> None:
    rows = [GOOD, row([0, 0], group="h"), row([0], group="h")]
    with pytest.raises(AuthorshipError, match=r"1 of 2 prompts .* \(the first is h\)"):
        check_rows(rows, RULES)


def test_empty_batch_stops_training() -> None:
    with pytest.raises(AuthorshipError, match="every rollout of this step failed"):
        check_rows([], RULES)


def test_validation_stops_on_errors_only() -> None:
    check_no_errors([replace(GOOD, authorship=None)])
    with pytest.raises(EngineError):
        check_no_errors([replace(GOOD, error="no")])


def test_validation_rows_are_whose_they_should_be() -> None:
    alone = replace(GOOD, authorship=None, seed=None, fingerprint=None, passages=[])
    check_validation_rows([GOOD, row([0, 0], "h")], True, RULES)
    check_validation_rows([alone], False, RULES)
    with pytest.raises(AuthorshipError, match="has no authorship"):
        check_validation_rows([GOOD, alone], True, RULES)
    with pytest.raises(FingerprintError, match="under the rules g"):
        check_validation_rows([replace(GOOD, fingerprint="g")], True, RULES)
    with pytest.raises(AuthorshipError, match="senior was to answer alone"):
        check_validation_rows([alone, GOOD], False, RULES)
    for team in (True, False):
        with pytest.raises(EngineError, match=r"RequestError: no\."):
            check_validation_rows([replace(alone, error="RequestError: no.")], team, RULES)
