"""Markers in texts: found by every spelling, as a search of the text itself finds them."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import Vocabulary
from tandem_plugin.boundaries import markers as markers_module
from tandem_plugin.boundaries.markers import Markers

MODES: dict[str, dict[str, dict[str, str]]] = {
    "call": {"text": {"<call>{n}</call>": "called"}, "called": {}},
    "parts": {"outside": {"<in>": "inside"}, "inside": {"</in>": "outside"}},
    "fences": {"out": {"```": "in"}, "in": {"```": "out"}},
    "think": {"thinking": {"</think>": "answer"}, "answer": {}},
    "overlaps": {
        "a": {"aab": "b", "ab": "c"},
        "b": {"ba{n}ab": "c", "abab": "a"},
        "c": {"aa": "a"},
    },
    "two numbers": {"a": {"<{n}>": "b", "<{n}/": "c"}, "b": {"1x{n}y2": "a"}, "c": {"é": "a"}},
}
MADE = {name: Markers(modes) for name, modes in MODES.items()}


def searched(modes: dict[str, dict[str, str]], text: bytes) -> tuple[str, int]:
    """The mode of a text and the number of the marker that led there, by regular expressions."""
    mode, number, begin = next(iter(modes)), 0, 0
    for end in range(1, len(text) + 1):
        matches = []
        for marker, target in modes[mode].items():
            pattern = re.escape(marker.encode()).replace(rb"\{n\}", rb"([0-9]{1,3})") + rb"\Z"
            if match := re.search(pattern, text[begin:end]):
                counted = int(match[1]) if match.re.groups else 0
                matches.append((len(marker) + 2 * (match.re.groups > 0), marker, target, counted))
        if matches:
            _, _, mode, number = max(matches)
            begin = end
    return mode, number


def cut(text: bytes, rng: random.Random) -> list[bytes]:
    """A text in random tokens; digits that are a token's are all of it."""
    pieces = []
    while text:
        length = rng.randint(1, 6)
        digits = re.match(rb"[0-9]+", text)
        end = min(length, digits.end()) if digits else length
        if not digits and (first := re.search(rb"[0-9]", text[:end])):
            end = first.start()
        pieces.append(text[:end])
        text = text[end:]
    return pieces


def read(markers: Markers, pieces: list[bytes]) -> np.ndarray:
    """The state after each token, by the classes of a vocabulary of exactly these tokens."""
    state, states = np.zeros(1, dtype=np.int64), []
    for piece in pieces:
        state = markers.advance(state, np.array([markers._class_of(piece)]))
        states.append(int(state[0]))
    return np.array(states)


@pytest.mark.parametrize("name", MODES)
def test_every_spelling_of_a_text_has_the_modes_of_a_search(name: str) -> None:
    """With halves of markers, markers within markers, and numbers of up to five digits."""
    rng, markers, entered = random.Random(7), MADE[name], set()
    ends = [m for of in MODES[name].values() for m in of]
    for _ in range(400):
        parts = []
        for _ in range(rng.randint(1, 8)):
            marker = rng.choice(ends).replace("{n}", str(rng.randrange(10 ** rng.randint(1, 5))))
            encoded = marker.encode()
            start, stop = sorted((rng.randint(0, len(encoded)), rng.randint(0, len(encoded))))
            parts.append(rng.choice([encoded, encoded[start:stop], b"x", b"<", b"a", b"0"]))
        text = b"".join(parts)
        expected, number = searched(MODES[name], text)
        entered.add(expected)
        for _ in range(3):
            state = read(markers, cut(text, rng))[-1:] if text else np.zeros(1, dtype=np.int64)
            assert {mode for mode in MODES[name] if markers.in_mode(state, mode)[0]} == {expected}
            has_own = "{n}" in "".join(MODES[name][expected])
            if not has_own or searched(MODES[name], text[:-1])[0] != expected:
                assert markers.number(state).tolist() == [number]
    assert entered == set(MODES[name])


@given(st.sampled_from(sorted(MODES)), st.binary(max_size=12), st.data())
def test_two_spellings_of_a_text_lead_to_one_state(
    name: str, text: bytes, data: st.DataObject
) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    text = re.sub(rb"[0-9]", b"", text) + b"".join(
        rng.choice([b"`", b"<", b"a", b"</in", b"k>", b"call>"]) for _ in range(4)
    )
    markers = MADE[name]
    spelled = [read(markers, cut(text, rng))[-1] for _ in range(3)]
    assert len(set(spelled)) == 1
    assert 0 <= spelled[0] < 2**markers.bits


def test_states_of_tensors_are_those_of_arrays() -> None:
    torch = pytest.importorskip("torch")
    for markers in MADE.values():
        random_classes = np.random.default_rng(3).integers(0, len(markers.classes), (200, 16))
        state, tensor = np.zeros(16, dtype=np.int64), torch.zeros(16, dtype=torch.int64)
        for token_class in random_classes:
            state = markers.advance(state, token_class)
            tensor = markers.advance(tensor, torch.from_numpy(token_class))
            assert state.tolist() == tensor.tolist()
            assert markers.number(state).tolist() == markers.number(tensor).tolist()


def test_classes_are_named_by_the_shortest_text_of_each() -> None:
    markers = MADE["fences"]
    assert markers.classes[:4] == ("", "`", "a", "``")
    assert len(set(markers.classes)) == len(markers.classes)
    vocabulary = Vocabulary(("", "zebra", "`", "Ġ`", "``", "x```y"), "a test")
    names = [markers.classes[place] for place in markers.table(vocabulary)]
    assert names == ["", "a", "`", "a`", "``", "```a"]
    assert MADE["call"].classes[-3:] == ("{997}", "{998}", "{999}")


def test_added_and_special_tokens_count_by_their_text() -> None:
    pieces = ("Ġ", "<think>", "</think>", "</", "think", ">", "k>Ċ")
    vocabulary = Vocabulary(pieces, "a test", "byte-level BPE", frozenset({1, 2}))
    markers = MADE["think"]
    table = markers.table(vocabulary)
    assert table.dtype == np.uint16
    for ids, ended in (([0, 2], True), ([3, 4, 5], True), ([3, 4], False), ([1, 4, 5], False)):
        state = np.zeros(1, dtype=np.int64)
        for token_id in ids:
            state = markers.advance(state, table[token_id : token_id + 1].astype(np.int64))
        assert markers.in_mode(state, "answer").tolist() == [ended]


@pytest.mark.parametrize("family", ["byte-level BPE", "SentencePiece"])
def test_a_number_may_be_one_token_or_several(family: str) -> None:
    pieces = ("<call>", "</call>", "1", "28", "128", "<", "call", ">", "/", "0128")
    markers = MADE["call"]
    table = markers.table(Vocabulary(pieces, "a test", family)).astype(np.int64)  # type: ignore[arg-type]
    for ids, number in (
        ([0, 2, 3, 1], 128),
        ([0, 4, 1], 128),
        ([5, 6, 7, 4, 5, 8, 6, 7], 128),
        ([0, 2, 1], 1),
        ([0, 2, 4, 1], 0),  # 1128: more than three digits
        ([0, 9, 1], 0),
        ([0, 1], 0),
        ([0, 2, 6, 1], 0),
        ([0, 0, 2, 1], 1),
    ):
        state = np.zeros(1, dtype=np.int64)
        for token_id in ids:
            state = markers.advance(state, table[[token_id]])
        assert markers.in_mode(state, "called").tolist() == [number > 0]
        assert markers.number(state).tolist() == [number] or not number


@pytest.mark.parametrize("piece", [">5", "5<", "<call>5", "5</call>", "<call>5</call>", "5</"])
def test_a_token_of_digits_and_more_of_a_marker_is_refused(piece: str) -> None:
    pieces = ("<call>", "</call>", "5", piece)
    with refused("marker-number-in-token", piece=piece, token_id=3):
        MADE["call"].table(Vocabulary(pieces, "a test"))


@pytest.mark.parametrize("piece", ["x5", "5x", "5.", "12345", "<5", "a5b"])
def test_a_token_whose_digits_are_no_markers_is_not(piece: str) -> None:
    MADE["call"].table(Vocabulary(("<call>", "</call>", "5", piece), "a test"))


def test_a_vocabulary_that_cannot_spell_a_marker_is_refused() -> None:
    with refused("marker-never-spelled", mode="answer", source="a test"):
        MADE["think"].table(Vocabulary(("think", ">", "<"), "a test"))
    with refused("marker-never-spelled", mode="called"):
        MADE["call"].table(Vocabulary(("<call>", "</call>", "x"), "a test"))


@pytest.mark.parametrize(
    "marker", ["", "{n}", "{n}x", "x{n}", "a{n}b{n}c", "1{n}x", "x{n}9", "a{n}{n}b"]
)
def test_what_is_no_marker_is_refused(marker: str) -> None:
    with refused("marker-invalid", marker=marker):
        Markers({"a": {marker: "b"}, "b": {}})


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with refused("marker-mode-unknown", marker="x", mode="b"):
        Markers({"a": {"x": "b"}})


def test_markers_of_too_many_classes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers_module, "MOST_CLASSES", 1000)
    assert len(Markers(MODES["think"]).classes) < 1000
    with refused("markers-too-many", most=1000):
        Markers(MODES["call"])
    monkeypatch.setattr(markers_module, "MOST_CLASSES", 100)
    with refused("markers-too-many", most=100):
        Markers({"outside": {"<junior>": "inside"}, "inside": {"</junior>": "outside"}})
