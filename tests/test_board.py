"""The author board: what a step's authors are posted to and taken from, and when it stops."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from tandem_plugin.engine.board import AuthorBoard, author_board
from tandem_plugin.errors import EngineError

AUTHORS = np.array([True, False, True])


@pytest.fixture
def board() -> AuthorBoard:
    board = AuthorBoard()
    board.bind()
    return board


def test_authors_are_taken_once(board: AuthorBoard) -> None:
    board.post(AUTHORS)
    assert board.take(3) is AUTHORS
    assert board.take(5) is None  # prompt logprobs, after the step's own logits
    board.settle()


def test_a_step_of_the_senior_alone_settles_without_being_asked(board: AuthorBoard) -> None:
    board.post(None)
    board.settle()


def test_a_board_that_no_runner_is_bound_to_stops() -> None:
    with pytest.raises(EngineError, match="No model runner is bound"):
        AuthorBoard().take(1)


def test_other_rows_than_were_posted_stop(board: AuthorBoard) -> None:
    board.post(AUTHORS)
    with pytest.raises(EngineError, match="2 rows, but the authors of 3"):
        board.take(2)


def test_a_step_that_did_not_ask_for_its_authors_stops(board: AuthorBoard) -> None:
    board.post(AUTHORS)
    with pytest.raises(EngineError, match="without asking who writes"):
        board.settle()


def test_a_step_whose_authors_were_never_posted_stops(board: AuthorBoard) -> None:
    with pytest.raises(EngineError, match="before its authors were known"):
        board.settle()
    board.post(AUTHORS)
    board.take(3)
    board.settle()
    with pytest.raises(EngineError, match="before its authors were known"):
        board.settle()


def test_a_board_lives_as_long_as_the_model_and_the_runner_that_share_it() -> None:
    config = SimpleNamespace(instance_id="a test")
    model, runner = author_board(config), author_board(config)
    assert model is runner
    left = weakref.ref(model)
    del model, runner
    gc.collect()
    assert left() is None
    assert not author_board(config).bound
