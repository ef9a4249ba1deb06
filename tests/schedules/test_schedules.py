from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from algorithm_1 import algorithm_1, boundary_set
from hypothesis import find, given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import (
    Schedule,
    draws,
    list_schedules,
    make_schedule,
    replay,
    replay_batch,
)
from tandem_plugin._draws import MAX_SEED
from tandem_plugin._replay import walk_batch
from tandem_plugin.schedules import schedule_parameters, takes_training_step
from tandem_plugin.schedules.schedule import step_through

SEEDS = st.integers(0, MAX_SEED)
LONG = st.builds(
    lambda seed, length: np.random.default_rng(seed).integers(0, 41, length).tolist(),
    st.integers(0, 2**32),
    st.integers(40, 150),
)
TOKENS = LONG | st.lists(st.integers(0, 40), max_size=20)
"""Token ids; those past 31 lie outside the tables of the tests, as in a padded embedding."""
SETS = st.sets(st.integers(0, 31), max_size=8)
P = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])
STRATEGIES = {
    "word": st.fixed_dictionaries({"p": P, "cap": st.integers(1, 40)}),
    "solo-word": st.fixed_dictionaries({"p": P, "cap": st.integers(1, 40)}),
    "token": st.fixed_dictionaries({"p": P}),
    "chunk": st.fixed_dictionaries({"p": P, "n": st.integers(1, 40)}),
    "sentence": st.fixed_dictionaries({"p": P}),
    "step": st.fixed_dictionaries({"first": st.sampled_from(["senior", "junior"])}),
    "step-bernoulli": st.fixed_dictionaries({"p": P}),
    "handover": st.fixed_dictionaries(
        {
            "first": st.sampled_from(["senior", "junior"]),
            "after": st.integers(0, 40),
            "end": st.integers(0, 40),
            "steps": st.integers(0, 5),
            "training_step": st.integers(0, 7),
        }
    ),
    "solo": st.just({}),
    "junior": st.just({}),
}
"""Every parameter of every schedule."""
SCHEDULES = st.one_of(
    [
        st.builds(
            lambda name, drawn, alone: make_schedule(name, {**drawn, "alone": alone}),
            st.just(name),
            drawn,
            st.sampled_from([0.0, 0.5]),
        )
        for name, drawn in STRATEGIES.items()
    ]
)


@given(TOKENS, SETS, st.integers(1, 4) | st.integers(1, 40), P, SEEDS)
def test_word_schedule_replays_algorithm_1(
    tokens: list[int], ids: set[int], cap: int, p: float, seed: int
):
    schedule = make_schedule("word", {"p": p, "cap": cap})
    expected = algorithm_1(tokens, ids, cap, p, draws(seed, len(tokens) + 1))
    assert replay(tokens, seed, schedule, boundary_set(ids)).tolist() == expected


@given(TOKENS, SETS, SEEDS, st.integers(2, 6))
def test_cap_of_the_authors_release_is_one_more(
    tokens: list[int], ids: set[int], seed: int, cap: int
):
    """The release redraws after ``cap`` tokens in a row that are no boundary."""
    u, author, run, expected = draws(seed, len(tokens) + 1), 0, cap, []
    for t, token in enumerate(tokens):
        if run == cap:
            author, run = int(u[t] < 0.5), 0
        expected.append(author)
        run = cap if token in ids else run + 1
    here = make_schedule("word", {"cap": cap - 1})
    assert replay(tokens, seed, here, boundary_set(ids)).tolist() == expected


@given(TOKENS, SETS, SEEDS, st.sampled_from(["senior", "junior"]))
def test_step_schedule_hands_over_at_every_boundary(
    tokens: list[int], ids: set[int], seed: int, first: str
):
    author, expected = int(first == "senior"), []
    for token in tokens:
        expected.append(author)
        author = 1 - author if token in ids else author
    authors = replay(tokens, seed, make_schedule("step", {"first": first}), boundary_set(ids))
    assert authors.tolist() == expected


@given(TOKENS, SETS, SEEDS, st.sampled_from(["senior", "junior"]), st.integers(0, 12))
def test_handover_schedule_hands_over_once_behind_the_boundary_that_it_counts(
    tokens: list[int], ids: set[int], seed: int, first: str, after: int
):
    expected, passed = [], 0
    for token in tokens:
        expected.append(int((first == "senior") == (passed < after)))
        passed += token in ids
    schedule = make_schedule("handover", {"first": first, "after": after})
    assert replay(tokens, seed, schedule, boundary_set(ids)).tolist() == expected


def test_prefix_of_a_handover_follows_the_training_step():
    given = {"after": 10, "end": 3, "steps": 4}
    lengths = []
    for step in range(7):
        schedule = make_schedule("handover", {**given, "training_step": step})
        authors = replay([0] * 20, 1, schedule, boundary_set(range(32)))
        lengths.append(authors.tolist().index(1))
    # Python's own floats of the line 10 - 7 s / 4, rounded down.
    assert lengths == [10, 8, 6, 4, 3, 3, 3]
    assert takes_training_step(make_schedule("handover", {}))


@given(
    TOKENS,
    SETS,
    P,
    SEEDS,
    st.sampled_from(["token", "sentence", "step-bernoulli"]) | st.integers(1, 40),
)
def test_other_schedules_redraw_where_they_say_and_nowhere_else(
    tokens: list[int], ids: set[int], p: float, seed: int, rule: str | int
):
    """After every token, every boundary, or every n tokens (``chunk``)."""
    u, author, expected = draws(seed, len(tokens) + 1), 0, []
    for t in range(len(tokens)):
        last = tokens[t - 1]
        if t == 0 or rule == "token" or (t % rule == 0 if isinstance(rule, int) else last in ids):
            author = int(u[t] < p)
        expected.append(author)
    chosen = ("chunk", {"p": p, "n": rule}) if isinstance(rule, int) else (rule, {"p": p})
    assert replay(tokens, seed, make_schedule(*chosen), boundary_set(ids)).tolist() == expected


def test_every_schedule_and_parameter_is_among_those_of_the_property_tests():
    assert set(STRATEGIES) == set(list_schedules())
    for name, strategy in STRATEGIES.items():
        parameters = find(strategy, lambda drawn: True)
        assert set(parameters) == set(schedule_parameters(make_schedule(name, {})))


@given(TOKENS, SETS, SEEDS)
def test_solo_and_junior_schedules_have_one_author(tokens: list[int], ids: set[int], seed: int):
    boundaries = boundary_set(ids)
    for name, bit in (("solo", 1), ("junior", 0)):
        authors = replay(tokens, seed, make_schedule(name, {}), boundaries)
        assert authors.tolist() == [bit] * len(tokens)


@given(st.lists(st.tuples(TOKENS, SEEDS), max_size=6), SETS, SCHEDULES)
def test_batch_replays_as_row_by_row(
    rows: list[tuple[list[int], int]], ids: set[int], schedule: Schedule
):
    boundaries = boundary_set(ids)
    batch = replay_batch([r for r, _ in rows], [s for _, s in rows], schedule, boundaries)
    assert batch == [replay(tokens, seed, schedule, boundaries) for tokens, seed in rows]


@given(st.lists(st.integers(0, 40), min_size=2, max_size=60), st.data(), SEEDS, SETS, SCHEDULES)
def test_stepping_on_from_a_walk_equals_the_replay(
    tokens: list[int], data: st.DataObject, seed: int, ids: set[int], schedule: Schedule
):
    """An engine that resumes a preempted response goes on with ``advance`` from its walk."""
    boundaries = boundary_set(ids)
    cut = data.draw(st.integers(0, len(tokens) - 1))
    (walk,) = walk_batch([tokens[:cut]], [seed], schedule, boundaries)
    author, run = np.array([walk.author]), np.array([walk.run])
    u, authors = draws(seed, len(tokens) + 1), []
    for t in range(cut, len(tokens)):
        authors.append(bool(author[0]))
        is_boundary = boundaries.contains(tokens[t : t + 1])
        author, run = schedule.advance(author, run, is_boundary, u[t + 1 : t + 2])
    assert authors == replay(tokens, seed, schedule, boundaries).senior[cut:].tolist()


@given(SCHEDULES, SEEDS)
def test_steps_of_a_schedule_go_the_way_of_its_walk(schedule: Any, seed: int):
    """On so many positions that every cap and every chunk is reached."""
    random = np.random.default_rng(seed)
    is_boundary, u = random.random((16, 90)) < 0.05, random.random((16, 91))
    authors, runs = step_through(schedule, is_boundary, u)
    walked, walked_runs = schedule.walk(is_boundary, u)
    assert np.array_equal(authors, walked)
    assert np.array_equal(runs, walked_runs)


REDRAWN = [name for name, drawn in STRATEGIES.items() if "p" in find(drawn, lambda drawn: True)]


@pytest.mark.parametrize("p", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("name", REDRAWN)
def test_a_draw_gives_the_senior_below_p_and_not_at_it(name: str, p: float):
    schedule: Any = make_schedule(name, {"p": p})
    is_boundary, u = np.ones((1, 70), dtype=np.bool_), np.full((1, 71), p)
    below = np.nextafter(u, -1)
    for drawn, author in ((u, False), (below, True)):
        assert schedule.start(drawn[0]).tolist() == [author] * 71
        for walk in (schedule.walk, partial(step_through, schedule)):
            assert walk(is_boundary, drawn)[0].tolist() == [[author] * 71]


@pytest.mark.parametrize("name", ["word", "solo-word"])
@pytest.mark.parametrize("length", range(1, 12))
def test_a_run_of_any_length_is_redrawn_at_the_cap(name: str, length: int):
    """The shortest run that passes the cap among them: a redraw after every three tokens."""
    u = np.tile([0.1, 0.9, 0.9, 0.9, 0.1, 0.1], (1, 2))[:, : length + 1]
    schedule: Any = make_schedule(name, {"cap": 2})
    for walk in (schedule.walk, partial(step_through, schedule)):
        authors, runs = walk(np.zeros((1, length), dtype=np.bool_), u)
        assert authors[0].tolist() == (([True] * 3 + [False] * 3) * 2)[: length + 1]
        assert runs[0].tolist() == [t % 3 for t in range(length + 1)]


@given(st.lists(st.tuples(SEEDS, SETS), min_size=1, max_size=5), SCHEDULES, st.integers(1, 50))
def test_torch_tensors_give_what_numpy_arrays_give(
    rows: list[tuple[int, set[int]]], schedule: Schedule, length: int
):
    torch = pytest.importorskip("torch")
    u = np.stack([draws(seed, length) for seed, _ in rows], axis=1)
    flags = np.array([[t % 32 in ids for _, ids in rows] for t in range(length)])
    author, run = schedule.start(u[0]), np.zeros(len(rows), dtype=np.int64)
    t_author = schedule.start(torch.from_numpy(u[0]))
    t_run = torch.zeros(len(rows), dtype=torch.int64)
    for t in range(length):
        assert t_author.dtype == torch.bool
        assert t_run.dtype == torch.int64
        assert author.dtype == np.bool_
        assert run.dtype == np.int64
        assert t_author.tolist() == author.tolist()
        assert t_run.tolist() == run.tolist()
        if t + 1 < length:
            author, run = schedule.advance(author, run, flags[t], u[t + 1])
            t_author, t_run = schedule.advance(
                t_author, t_run, torch.from_numpy(flags[t]), torch.from_numpy(u[t + 1])
            )


def test_empty_response_has_empty_authorship():
    boundaries = boundary_set({1})
    assert replay([], 1, make_schedule("word", {}), boundaries).tolist() == []
    assert replay_batch([], [], make_schedule("word", {}), boundaries) == []


def test_number_of_seeds_must_be_that_of_responses():
    with refused("seed-count-differs", responses=2, seeds=1):
        replay_batch([[1], [2]], [1], make_schedule("word", {}), boundary_set({1}))


@pytest.mark.parametrize("tokens", [[], [1, 2]])
def test_seed_out_of_range_is_refused_whatever_the_length(tokens: list[int]):
    with refused("seed-out-of-range", seed=-1):
        replay(tokens, -1, make_schedule("word", {}), boundary_set({1}))


@pytest.mark.parametrize("tokens", [[-1, 2], [2, -1], [-1]])
def test_negative_token_id_is_refused_wherever_it_is(tokens: list[int]):
    with refused("token-id-negative", token_id=-1):
        replay(tokens, 1, make_schedule("word", {}), boundary_set({1}))


@given(TOKENS, SETS, SCHEDULES, SEEDS)
def test_lists_and_arrays_of_any_integer_type_replay_alike(
    tokens: list[int], ids: set[int], schedule: Schedule, seed: int
):
    boundaries = boundary_set(ids)
    expected = replay(tokens, seed, schedule, boundaries)
    for dtype in (np.uint16, np.int32, np.int64):
        array = np.array(tokens, dtype=dtype)
        assert replay(array, seed, schedule, boundaries) == expected  # type: ignore[arg-type]
        assert replay(list(array), seed, schedule, boundaries) == expected  # type: ignore[arg-type]
    assert replay(tuple(tokens), seed, schedule, boundaries) == expected


@pytest.mark.parametrize("tokens", [[[1]], [1.5], [True, False], ["a"], [None]])
def test_response_that_is_no_list_of_integers_is_refused(tokens: Sequence[int]):
    with refused("response-ids-not-integers"):
        replay(tokens, 1, make_schedule("word", {}), boundary_set({1}))


def test_catalogue_names_each_schedule_by_its_own_name():
    built_in = "word token chunk sentence step step-bernoulli handover solo solo-word junior"
    assert list(list_schedules()) == built_in.split()
    for name in list_schedules():
        schedule = make_schedule(name, {})
        assert isinstance(schedule, Schedule)
        assert schedule.name == name
        assert make_schedule(name, schedule_parameters(schedule)) == schedule


@pytest.mark.parametrize(
    ("code", "schedule", "parameter", "values"),
    [
        (
            "parameter-not-probability",
            "word",
            "p",
            [1.5, -0.1, float("nan"), "0.5", True, None, 10**400],
        ),
        ("parameter-not-count", "word", "cap", [0, -3, 2.0, True, 2**63]),
        ("parameter-not-count", "chunk", "n", [0, 2**31, True, 10**5000]),
        ("parameter-not-index", "handover", "after", [-1, 1.5]),
        ("parameter-not-known", "step", "first", [True, "teacher"]),
        ("schedule-parameter-unknown", "sentence", "cap", [3]),
        ("schedule-parameter-unknown", "solo", "p", [1]),
    ],
)
def test_wrong_parameter_is_refused(code: str, schedule: str, parameter: str, values: list[object]):
    for value in values:
        with refused(code):
            make_schedule(schedule, {parameter: value})
