"""Marked parts with limits, against a reading of the text by regular expressions."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from refused import refused

from tandem_plugin.boundaries.marked_parts import (
    MOST_PARTS,
    MOST_TOKENS,
    MarkedParts,
    marked_parts,
)
from tandem_plugin.boundaries.markers import Markers

MODES: dict[str, tuple[str, dict[str, dict[str, str]]]] = {
    "call": ("called", {"text": {"<call>{n}</call>": "called"}, "called": {}}),
    "parts": ("in", {"out": {"<in>": "in"}, "in": {"</in>": "out"}}),
    "fences": ("in", {"out": {"```": "in"}, "in": {"```": "out"}}),
    "both": ("in", {"out": {"<{n}>": "in", "<in>": "in"}, "in": {"<o>": "other"}, "other": {}}),
    "a number before": (
        "in",
        {"out": {"<{n}>": "middle"}, "middle": {"in": "in", "back": "out"}, "in": {"</in>": "out"}},
    ),
    "overlapping": ("in", {"out": {"a{n}bc": "in", "1bd": "out"}, "in": {"cc": "out"}}),
}
"""The mode of the parts, and modes with their markers."""


def searched(modes: dict[str, dict[str, str]], text: bytes) -> tuple[str, int | None]:
    """The mode of a text, and the number of the marker that led there; None without one."""
    mode, number, begin = next(iter(modes)), None, 0
    for end in range(1, len(text) + 1):
        matches = []
        for marker, target in modes[mode].items():
            pattern = re.escape(marker.encode()).replace(rb"\{n\}", rb"([0-9]{1,3})") + rb"\Z"
            if match := re.search(pattern, text[begin:end]):
                counted = int(match[1]) if match.re.groups else None
                length = len(marker) + (0 if counted is None else 2)
                matches.append((length, marker, target, counted))
        if matches:
            _, _, mode, number = max(matches, key=lambda match: match[:2])
            begin = end
    return mode, number


def by_hand(
    mode: str, modes: dict[str, dict[str, str]], tokens: list[bytes], most: int, parts: int
) -> list[bool]:
    """Whether the text is in a part, behind each token."""
    in_part, left, begun, text = False, 0, 0, b""
    states = []
    for token in tokens:
        text += token
        now, number = searched(modes, text)
        if begun == parts and not in_part:
            pass
        elif in_part:
            left -= 1
            in_part = now == mode and left > 0
            if now == mode and not in_part:
                text = b""
        elif now == mode:
            left = most if number is None else min(number, most)
            in_part, begun = left > 0, begun + (left > 0)
            text = text if in_part else b""
        states.append(in_part)
    return states


def pieces_of(modes: dict[str, dict[str, str]], rng: random.Random) -> list[bytes]:
    """Tokens of markers, whole and in parts, of numbers, and of other text."""
    markers = [marker for mode in modes.values() for marker in mode]
    tokens: list[bytes] = []
    for _ in range(rng.randint(1, 15)):
        number = str(rng.randrange(10 ** rng.randint(1, 4)))
        for part in re.split(r"(\{n\})", rng.choice([*markers, *markers, "x", "b", "<", "1"])):
            text = number if part == "{n}" else part
            while text:
                digits = re.match("[0-9]+", text)
                size = min(rng.randint(1, 7), digits.end() if digits else len(text))
                if not digits and (first := re.search("[0-9]", text)):
                    size = min(size, first.start())
                tokens.append(text[:size].encode())
                text = text[size:]
        tokens += [b"x"] * rng.choice([0, 0, 1, 9])
    return tokens


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize(("most", "parts"), [(300, 1000), (5, 3), (1, 1), (2, 40)])
def test_parts_begin_and_end_where_the_text_and_the_limits_say(
    name: str, most: int, parts: int
) -> None:
    mode, modes = MODES[name]
    rng, markers, inside = random.Random(most), Markers(modes), 0
    automaton = MarkedParts(markers, mode, most=most, parts=parts)
    for _ in range(50):
        tokens = pieces_of(modes, rng)
        run, states = np.zeros(1, dtype=np.int64), []
        for token in tokens:
            run = automaton.advance(run, np.array([markers._class_of(token)]))
            states.append(bool(run[0] < 0))
        assert states == by_hand(mode, modes, tokens, most, parts), tokens
        inside += sum(states)
    assert inside > 15


def test_states_of_tensors_are_those_of_arrays() -> None:
    torch = pytest.importorskip("torch")
    for mode, modes in MODES.values():
        markers = Markers(modes)
        parts = MarkedParts(markers, mode, most=3, parts=4)
        run, tensor = np.zeros(16, dtype=np.int64), torch.zeros(16, dtype=torch.int64)
        for classes in np.random.default_rng(3).integers(0, len(markers.classes), (300, 16)):
            run = parts.advance(run, classes)
            tensor = parts.advance(tensor, torch.from_numpy(classes))
            assert run.tolist() == tensor.tolist()
        assert parts.advance(tensor.to("meta"), tensor.to("meta")).dtype == torch.int64


def test_a_text_behind_its_last_part_stands_still() -> None:
    """So a model that writes markers without end changes nothing, and no counter overflows."""
    markers = Markers(MODES["call"][1])
    parts = marked_parts(markers, "called", 2, 1)
    words = [b"<call>", b"9", b"</call>", b"x", b"x"]
    run, runs = np.zeros(1, dtype=np.int64), []
    for word in words * 50:
        run = parts.advance(run, np.array([markers._class_of(word)]))
        runs.append(int(run[0]))
    assert [run < 0 for run in runs] == [False, False, True, True, *[False] * 246]
    assert len(set(runs[4:])) == 1


def test_steps_of_the_same_limits_read_the_same_tables() -> None:
    markers = Markers(MODES["parts"][1])
    parts = marked_parts(markers, "in", 4, 2)
    assert marked_parts(markers, "in", 4, 2) is parts
    assert marked_parts(markers, "in", 5, 2) is not parts


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, "5", None])
def test_what_is_no_limit_is_refused(limit: object) -> None:
    markers = Markers(MODES["parts"][1])
    marked_parts(markers, "in", 1, 1)
    for name, limits, largest in (
        ("most", (limit, 1), MOST_TOKENS),
        ("parts", (1, limit), MOST_PARTS),
    ):
        with refused("part-limit-invalid", name=name, limit=limit, largest=largest):
            marked_parts(markers, "in", *limits)  # type: ignore[arg-type]
    with refused("part-limit-invalid", name="most"):
        marked_parts(markers, "in", MOST_TOKENS + 1, 1)


def test_the_largest_limits_are_counted() -> None:
    markers = Markers(MODES["parts"][1])
    parts = marked_parts(markers, "in", MOST_TOKENS, MOST_PARTS)
    begin, other = (np.array([markers._class_of(text)]) for text in (b"<in>", b"x"))
    run, tokens = parts.advance(np.zeros(1, dtype=np.int64), begin), 0
    while run[0] < 0:
        run, tokens = parts.advance(run, other), tokens + 1
    assert tokens == MOST_TOKENS


@pytest.mark.parametrize(
    ("mode", "modes"),
    [
        ("unknown", {"out": {"<": "in"}, "in": {}}),
        ("out", {"out": {"<": "in"}, "in": {">": "out"}}),
        ("in", {"out": {"<": "in"}, "in": {"a{n}b": "out"}}),
        ("in", {"out": {"<{n}/zz": "in", "/z{n}q": "in"}, "in": {}}),
    ],
)
def test_a_mode_that_cannot_be_parts_is_refused(
    mode: str, modes: dict[str, dict[str, str]]
) -> None:
    with refused("part-mode-invalid", mode=mode):
        marked_parts(Markers(modes), mode, 5, 5)
