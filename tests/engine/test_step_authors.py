"""A step's authors: how they are posted and taken, and when that stops."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from refused import refused

from tandem_plugin.engine.step_authors import StepAuthors, step_authors_of

AUTHORS = np.array([True, False, True])


@pytest.fixture
def step_authors() -> StepAuthors:
    step_authors = StepAuthors()
    step_authors.bind()
    return step_authors


def test_authors_are_taken_once(step_authors: StepAuthors) -> None:
    step_authors.post(AUTHORS)
    assert step_authors.take(3) is AUTHORS
    assert step_authors.take(5) is None  # prompt logprobs, after the step's own logits
    step_authors.settle()


def test_a_step_of_the_senior_alone_settles_without_being_asked(step_authors: StepAuthors) -> None:
    step_authors.post(None)
    assert not step_authors.has_sampled
    step_authors.settle()
    assert step_authors.has_sampled


def test_taking_authors_without_a_bound_runner_stops() -> None:
    with refused("model-runner-missing"):
        StepAuthors().take(1)


@pytest.mark.parametrize("rows", [2, 4])
def test_other_rows_than_were_posted_stop(step_authors: StepAuthors, rows: int) -> None:
    step_authors.post(AUTHORS)
    with refused("logit-rows-unknown", rows=rows, known=3):
        step_authors.take(rows)


def test_a_step_that_did_not_ask_for_its_authors_stops(step_authors: StepAuthors) -> None:
    step_authors.post(AUTHORS)
    with refused("step-authors-not-looked-up"):
        step_authors.settle()


def test_a_step_whose_authors_were_never_posted_stops(step_authors: StepAuthors) -> None:
    with refused("step-authors-out-of-order"):
        step_authors.settle()
    step_authors.post(AUTHORS)
    step_authors.take(3)
    step_authors.settle()
    with refused("step-authors-out-of-order"):
        step_authors.settle()


def test_step_authors_live_as_long_as_the_model_and_the_runner_that_share_them() -> None:
    config = SimpleNamespace(instance_id="a test")
    model, runner = step_authors_of(config), step_authors_of(config)
    assert model is runner
    left = weakref.ref(model)
    del model, runner
    gc.collect()
    assert left() is None
    assert not step_authors_of(config).bound
