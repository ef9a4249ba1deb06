"""The two heads: each row gets its author's logits over the ids that both models have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tandem_plugin.engine.heads import Heads

SENIOR_WIDTH, JUNIOR_WIDTH = 4, 3


class Model:
    """A head alone; ``rows`` counts the rows that it was given."""

    def __init__(self, width: int, vocabulary: int, seed: int) -> None:
        self.weight = torch.randn(width, vocabulary, generator=torch.Generator().manual_seed(seed))
        text = SimpleNamespace(vocab_size=vocabulary)
        self.config = SimpleNamespace(get_text_config=lambda: text)
        self.rows = 0
        self.silent = False

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor | None:
        self.rows += hidden.shape[0]
        return None if self.silent else hidden @ self.weight


def make(
    senior_ids: int, junior_ids: int, junior_width: int = JUNIOR_WIDTH
) -> tuple[Heads, Model, Model]:
    senior, junior = Model(SENIOR_WIDTH, senior_ids, 0), Model(junior_width, junior_ids, 1)
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            get_hidden_size=lambda: SENIOR_WIDTH, get_vocab_size=lambda: senior_ids
        )
    )
    return Heads(senior, junior, Model, config), senior, junior


def forms(authors: list[bool]) -> list[Any]:
    return [np.array(authors), torch.tensor(authors)]


@pytest.mark.parametrize("width", [JUNIOR_WIDTH, SENIOR_WIDTH])
@pytest.mark.parametrize("sizes", [(9, 9), (9, 7), (7, 9)])
@pytest.mark.parametrize(
    "authors", [[True] * 5, [False] * 5, [True, False, False, True, False], [False]]
)
def test_each_row_gets_its_authors_logits(
    sizes: tuple[int, int], authors: list[bool], width: int
) -> None:
    """A self-pair has equal widths, which are gathered in another way."""
    heads, senior, junior = make(*sizes, width)
    hidden = torch.randn(len(authors), SENIOR_WIDTH + width)
    shared = min(sizes)
    expected = torch.full((len(authors), sizes[0]), -torch.inf)
    for row, author in enumerate(authors):
        part = hidden[row, :SENIOR_WIDTH] if author else hidden[row, SENIOR_WIDTH:]
        weight = senior.weight if author else junior.weight
        expected[row, :shared] = (part @ weight)[:shared]
    for form in forms(authors):
        logits = heads.logits(hidden, form)
        assert logits is not None
        torch.testing.assert_close(logits, expected)


def test_without_authors_every_row_is_the_seniors() -> None:
    heads, senior, junior = make(9, 9)
    hidden = torch.randn(3, SENIOR_WIDTH + JUNIOR_WIDTH)
    torch.testing.assert_close(heads.logits(hidden, None), hidden[:, :SENIOR_WIDTH] @ senior.weight)
    assert junior.rows == 0


@pytest.mark.parametrize("authors", [*forms([True, False, True]), None])
@pytest.mark.parametrize(("senior_ids", "junior_ids"), [(9, 9), (9, 7), (7, 9)])
def test_placeholders_of_images_are_never_sampled(
    authors: Any, senior_ids: int, junior_ids: int
) -> None:
    plain, senior, junior = make(senior_ids, junior_ids)
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            get_hidden_size=lambda: SENIOR_WIDTH, get_vocab_size=lambda: senior_ids
        )
    )
    heads = Heads(senior, junior, Model, config, placeholders=[2, 5])
    hidden = torch.randn(3, SENIOR_WIDTH + JUNIOR_WIDTH)
    expected, logits = plain.logits(hidden, authors), heads.logits(hidden, authors)
    assert expected is not None
    assert logits is not None
    assert (logits[:, [2, 5]] == -torch.inf).all()
    others = [token for token in range(senior_ids) if token not in (2, 5)]
    assert torch.equal(logits[:, others], expected[:, others])


def test_on_the_host_only_the_authors_head_runs_for_a_row() -> None:
    heads, senior, junior = make(9, 9)
    heads.logits(torch.randn(5, 7), np.array([True, False, True, True, False]))
    assert (senior.rows, junior.rows) == (3, 2)


@pytest.mark.parametrize("authors", [*forms([True, False]), *forms([True, True])])
def test_a_rank_that_gets_no_logits_gives_none(authors: Any) -> None:
    heads, senior, junior = make(9, 9)
    senior.silent = junior.silent = True
    assert heads.logits(torch.randn(2, 7), authors) is None


def test_senior_that_writes_everything_gives_its_logits_for_every_author() -> None:
    heads, senior, junior = make(9, 7)
    config = SimpleNamespace(
        model_config=SimpleNamespace(get_hidden_size=lambda: SENIOR_WIDTH, get_vocab_size=lambda: 9)
    )
    control = Heads(senior, junior, Model, config, senior_writes=True)
    hidden = torch.randn(3, SENIOR_WIDTH + JUNIOR_WIDTH)
    expected = heads.logits(hidden, None)
    assert expected is not None
    junior.rows = 0
    for form in forms([True, False, False]):
        logits = control.logits(hidden, form)
        assert logits is not None
        assert torch.equal(logits, expected)
    assert junior.rows == 0
