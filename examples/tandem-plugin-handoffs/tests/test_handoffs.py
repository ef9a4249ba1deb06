"""The three schedules against a reading of the text by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tandem_plugin_handoffs

from tandem_plugin import ConfigError, TandemConfig, TandemRules, Vocabulary, hookimpl
from tandem_plugin.plugins import using_plugins

PIECES = (
    *("x", " y", "<call>", "</call>", "<junior>", "</junior>", "</think>", "0", "3", "12", "7"),
    *("<", "</", "call", ">", "junior", "think", ">x", "l", "ca", "/"),
)
VOCABULARY = Vocabulary(PIECES, "a test", "plain text")


@pytest.fixture(autouse=True)
def plugged() -> Iterator[None]:
    """The plugin as if it were installed, so that the tests run from a checkout as well."""
    with using_plugins(tandem_plugin_handoffs):
        yield


def rules(schedule: str, **settings: Any) -> TandemRules:
    return TandemRules(TandemConfig.from_mapping({"schedule": schedule, **settings}), VOCABULARY)


def ids(*pieces: str) -> list[int]:
    return [PIECES.index(piece) for piece in pieces]


def responses(seed: int) -> Iterator[list[int]]:
    """Random ones that hold many markers: whole, spelled, halved, and commands with a number."""
    random = np.random.default_rng(seed)
    parts = [
        *([piece] for piece in PIECES),
        *(["<call>", number, "</call>"] for number in ("0", "3", "12", "7")),
        ["<", "call", ">", "3", "</", "call", ">"],
        ["<call>", "3", "7", "</", "ca", "l", "l", ">x"],
        ["<", "junior", ">"],
        ["</", "junior", ">x"],
        ["<", "/", "think", ">"],
    ]
    for _ in range(60):
        chosen = random.integers(0, len(parts), random.integers(0, 40)).tolist()
        yield [token for part in chosen for token in ids(*parts[part])]


def call_by_hand(tokens: list[int], most: int, calls: int) -> list[int]:
    authors, left, made, text = [], 0, 0, ""
    for token in tokens:
        authors.append(int(left == 0))
        if left:
            left -= 1
            continue
        text += PIECES[token]
        if command := re.search(r"<call>(\d{1,3})</call>", text):
            text = ""
            if int(command[1]) and made < calls:
                left, made = min(int(command[1]), most), made + 1
    return authors


def fenced_by_hand(tokens: list[int], most: int, parts: int) -> list[int]:
    authors, inside, written, begun, text = [], False, 0, 0, ""
    for token in tokens:
        authors.append(int(not inside))
        written += inside
        was_inside = inside
        for character in PIECES[token]:
            text += character
            if text.endswith("</junior>" if inside else "<junior>"):
                inside, text = not inside, ""
        if inside and (written >= most or (not was_inside and begun >= parts)):
            inside, text = False, ""
        if inside and not was_inside:
            begun, written = begun + 1, 0
        if not inside:
            written = 0
    return authors


def think_by_hand(tokens: list[int], thinker: str, most: int) -> list[int]:
    authors, text = [], ""
    for place, token in enumerate(tokens):
        is_thinking = "</think>" not in text and place < most
        authors.append(int(is_thinking == (thinker == "senior")))
        text += PIECES[token]
    return authors


@pytest.mark.parametrize(("most", "calls"), [(256, 8), (5, 2), (1, 1)])
def test_the_junior_writes_what_the_seniors_commands_ask_for(most: int, calls: int) -> None:
    rule, juniors = rules("call", most=most, calls=calls).default, 0
    for tokens in responses(1):
        authors = rule.replay(tokens, 3).tolist()
        assert authors == call_by_hand(tokens, most, calls)
        juniors += authors.count(0)
    assert juniors > 20


@pytest.mark.parametrize(("most", "parts"), [(256, 8), (4, 2), (1, 1)])
def test_the_junior_writes_between_the_markers(most: int, parts: int) -> None:
    rule, juniors = rules("fenced", most=most, parts=parts).default, 0
    for tokens in responses(2):
        authors = rule.replay(tokens, 3).tolist()
        assert authors == fenced_by_hand(tokens, most, parts)
        juniors += authors.count(0)
    assert juniors > 20


@pytest.mark.parametrize("thinker", ["senior", "junior"])
@pytest.mark.parametrize("most", [1024, 9, 1])
def test_one_model_thinks_and_the_other_one_answers(thinker: str, most: int) -> None:
    rule, both = rules("think", thinker=thinker, most=most).default, set()
    for tokens in responses(3):
        authors = rule.replay(tokens, 3).tolist()
        assert authors == think_by_hand(tokens, thinker, most)
        both |= set(authors)
    assert both == {0, 1}


def test_the_command_is_the_callers_and_the_juniors_commands_are_text() -> None:
    rule = rules("call").default
    tokens = ids("x", "<call>", "7", "</call>", "<call>", "12", "</call>", *"xxxxxxxx")
    assert rule.replay(tokens, 1).tolist() == [1] * 4 + [0] * 7 + [1] * 4


def test_the_limit_of_calls_is_replayed() -> None:
    """A model that calls without end has its ``calls`` calls, and nothing else."""
    rule = rules("call", calls=3, most=2).default
    authors = rule.replay(ids("<call>", "12", "</call>", "x", "x") * 50, 1)
    assert len(authors) - authors.senior_tokens == 3 * 2


def test_the_subclass_of_the_readme_has_its_own_command() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    names: dict[str, Any] = dict(vars(tandem_plugin_handoffs.call))
    exec(compile(code, "README.md", "exec", dont_inherit=True), names)
    kind = names["AskSchedule"]

    class Asking:
        @hookimpl
        def register_schedules(self, register: Any) -> None:
            register(kind)

        @hookimpl
        def register_boundaries(self, register: Any) -> None:
            register("ask", kind.markers.table, kind.classes)

    with using_plugins(Asking()):
        config = TandemConfig.from_mapping({"schedule": "ask", "calls": 1})
        vocabulary = Vocabulary(("[ask", " ", "2", "]", "x"), "a test", "plain text")
        rule = TandemRules(config, vocabulary).default
        assert rule.replay([0, 1, 2, 3, 4, 4, 4], 1).tolist() == [1, 1, 1, 1, 0, 0, 1]


def test_a_part_that_is_never_closed_ends_at_its_limit() -> None:
    rule = rules("fenced", most=5, parts=2).default
    authors = rule.replay(ids("<junior>", *["x"] * 9) * 3, 1).tolist()
    assert authors == ([1] + [0] * 5 + [1] * 4) * 2 + [1] * 10


@pytest.mark.parametrize("name", ["call", "fenced", "think"])
def test_other_limits_are_rejected(name: str) -> None:
    assert rules(name, most=1024).default
    for most in (0, -1, 2**40, True, 1.5):
        with pytest.raises(ConfigError):
            rules(name, most=most)


@pytest.mark.parametrize("name", ["call", "fenced", "think"])
def test_a_share_of_responses_may_be_the_seniors_alone(name: str) -> None:
    rule = rules(name, alone=0.5).default
    tokens = ids("<call>", "7", "</call>", "<junior>", "x", "x", "</think>", "x", "x")
    shares = {rule.replay(tokens, seed).senior_share for seed in range(40)}
    assert len(shares) == 2
    assert max(shares) == 1
