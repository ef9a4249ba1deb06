"""Markers in a response's text, whichever tokens spell them: the token classes of an automaton.

A marker such as ``</think>`` may be one token or several, or begin and end within tokens. All
spellings count: a finite automaton reads the text byte by byte, and the class of a token is what
its bytes do to the automaton's states. Tokens that do the same to all states are of one class, so
a few hundred classes are enough for any vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.marked_text import DIGITS, Automaton, Marker, automaton_of
from tandem_plugin.boundaries.vocabulary import Vocabulary
from tandem_plugin.errors import ConfigError, TokenizerError
from tandem_plugin.lookup import Lookup

MOST_DIGITS = 3
"""The most digits of a number in a marker."""

MOST_CLASSES = 2**16
"""The most classes that a table of uint16 can hold."""


class Markers:
    """Modes of a text, and the markers that lead from mode to mode.

    modes: for each mode, its markers and the modes that they lead to; the text begins in the first
    mode. ``{"outside": {"<junior>": "inside"}, "inside": {"</junior>": "outside"}}`` is a text with
    marked parts. A marker may contain ``{n}`` once: a number of one to three digits, as in
    ``<call>{n}</call>``. In each mode only its own markers count, and of several that end at the
    same byte the longest.

    A *state* is where a text stands: int64, at least 0 and less than ``2**bits``, 0 at its start.
    Raises :class:`ConfigError` for markers that are not of this form.
    """

    def __init__(self, modes: Mapping[str, Mapping[str, str]]) -> None:
        self.modes: tuple[str, ...] = tuple(modes)
        for markers in modes.values():
            for marker, target in markers.items():
                if target not in modes:
                    raise ConfigError("marker-mode-unknown", marker=marker, mode=target)
        self.automaton = automaton_of(
            [
                {_parsed(marker): self.modes.index(target) for marker, target in markers.items()}
                for markers in modes.values()
            ]
        )
        self._effects = _effects(self.automaton)
        self.numbers: list[str] = list(_numbers()) if self.automaton.has_numbers else []
        """The numbers that are tokens, if markers have any: their classes are the last ones."""
        names = [*map(_name, self._effects.texts), *(f"{{{number}}}" for number in self.numbers)]
        if len(names) > MOST_CLASSES:
            raise ConfigError("markers-too-many", classes=len(names), most=MOST_CLASSES)
        self.classes: tuple[str, ...] = tuple(names)
        """The names of the classes: each is the shortest text that does what its tokens do; a
        number that is a token is ``{12}``. Class 0 does nothing."""
        self.place_bits = max(1, (self.automaton.size - 1).bit_length())
        """A state of the automaton is less than ``2**place_bits``."""
        self.bits = self.place_bits + (10 if self.numbers else 0)
        """A state is less than ``2**bits``."""

    def table(self, vocabulary: Vocabulary) -> NDArray[np.uint16]:
        """The class of each token id: uint16 ``[vocab]``. This is a boundary resolver.

        Special and added tokens count by their text. Raises :class:`TokenizerError` if no tokens
        spell a marker, or if a token holds a part of a marker's number with a part of its text.
        """
        texts = vocabulary.texts()
        for token_id, text in enumerate(texts):
            if self.automaton.splits_number(text):
                raise TokenizerError(
                    "marker-number-in-token",
                    source=vocabulary.source,
                    piece=vocabulary.pieces[token_id],
                    token_id=token_id,
                )
        table = np.fromiter(map(self._class_of, texts), np.uint16, len(texts))
        self._check_spelled(vocabulary.source, table)
        return table

    def advance(self, state: Any, token_class: Any) -> Any:
        """The states after the next token.

        state, token_class: int64, arrays or tensors of one shape. Returns int64 of that shape.
        """
        if not self.numbers:
            return self._steps((token_class << self.place_bits) | state)
        place = state & ((1 << self.place_bits) - 1)
        step = self._steps((token_class << self.place_bits) | place)
        # The number so far times a power of ten, or 0, and the digits of this token.
        return (state - place) * (step >> self.bits) + (step & ((1 << self.bits) - 1))

    def in_mode(self, state: Any, mode: str) -> Any:
        """Whether texts are in this mode: bool, of the shape of ``state``."""
        first, stop = self.automaton.states_of(self.modes.index(mode))
        place = state & ((1 << self.place_bits) - 1) if self.numbers else state
        if first == 0:  # a comparison less, in every step
            return place < stop
        return place >= first if stop == self.automaton.size else (place >= first) & (place < stop)

    def number(self, state: Any) -> Any:
        """The number of the marker that led to each text's mode: int64, 0 without a number.

        In a mode that has numbered markers, only until the text writes a number.
        """
        return state >> self.place_bits if self.numbers else state * 0

    def _class_of(self, text: bytes) -> int:
        if self.numbers and text.isdigit() and len(text) <= MOST_DIGITS:
            return len(self._effects.texts) + self._number_places[text.decode()]
        return self._effects.of(text)

    def _check_spelled(self, source: str, table: NDArray[np.uint16]) -> None:
        """Raise :class:`TokenizerError` if no tokens of these classes lead to one of the modes."""
        moves = self.moves[np.unique(table)]
        reached = {0}
        fresh = [0]
        while fresh:
            following = set(moves[:, fresh].ravel().tolist()) - reached
            reached |= following
            fresh = list(following)
        for place, mode in enumerate(self.modes):
            first, stop = self.automaton.states_of(place)
            if reached.isdisjoint(range(first, stop)):
                raise TokenizerError("marker-never-spelled", source=source, mode=mode)

    @cached_property
    def _number_places(self) -> dict[str, int]:
        return {number: place for place, number in enumerate(self.numbers)}

    @cached_property
    def moves(self) -> NDArray[np.int64]:
        """The automaton's state after a token of each class: int64 ``[classes, states]``."""
        rows = [self.automaton.effect(number.encode()) for number in self.numbers]
        return np.array([*self._effects.moves, *rows], dtype=np.int64)

    @cached_property
    def _steps(self) -> Lookup:
        """By class and state: the state that follows, the digits of a number and its factor."""
        automaton, moves = self.automaton, self.moves
        factor, digits = automaton.keeps_number[moves].astype(np.int64), moves * 0
        for row, number in enumerate(self.numbers, start=len(self._effects.texts)):
            counts = automaton.counts[moves[row]]
            digits[row] = counts * int(number)
            factor[row] *= np.where(counts, automaton.counts * 10 ** len(number), 1)
        steps = moves | (digits << self.place_bits) | (factor << (self.place_bits + 10))
        padded = np.zeros((len(steps), 1 << self.place_bits), dtype=np.int64)
        padded[:, : automaton.size] = steps
        return Lookup(padded)


@dataclass(frozen=True, slots=True)
class _Effects:
    """Everything that a text can do to an automaton's states, by the shortest text that does it."""

    automaton: Automaton
    texts: list[bytes]
    moves: list[NDArray[np.int64]]
    """The state after each text, by the state before: int64 ``[states]``."""
    after: list[list[int]]
    """By text and kind of byte: the text that does what both do, one after the other."""

    def of(self, text: bytes) -> int:
        """Which of the texts does what this one does."""
        place = 0
        for kind in self.automaton.kinds(text):
            place = self.after[place][kind]
        return place


def _effects(automaton: Automaton) -> _Effects:
    """All effects, the shortest texts first: the transition monoid of the automaton.

    Source: Pin, *Mathematical Foundations of Automata Theory*, chapter IV.
    """
    identity = np.arange(automaton.size)
    numbers = {identity.tobytes(): 0}
    effects = _Effects(automaton, [b""], [identity], [])
    place = 0
    while place < len(effects.texts):
        row = []
        for kind, sample in enumerate(automaton.samples):
            moves = automaton.table[kind][effects.moves[place]]
            number = numbers.setdefault(moves.tobytes(), len(effects.texts))
            if number == len(effects.texts):
                effects.texts.append(effects.texts[place] + sample)
                effects.moves.append(moves)
            row.append(number)
        effects.after.append(row)
        if len(effects.texts) > MOST_CLASSES:
            raise ConfigError("markers-too-many", classes=len(effects.texts), most=MOST_CLASSES)
        place += 1
    return effects


def _numbers() -> Iterator[str]:
    for digits in range(1, MOST_DIGITS + 1):
        yield from (f"{number:0{digits}}" for number in range(10**digits))


def _name(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


def _parsed(marker: str) -> Marker:
    """A marker's bytes, with ``{n}`` as places for digits."""
    before, number, behind = (part.encode() for part in marker.partition("{n}"))
    if not number and marker:
        return tuple(before)
    neighbours = (before[-1:], behind[:1])
    if b"" in neighbours or any(byte.isdigit() for byte in neighbours) or number in behind:
        raise ConfigError("marker-invalid", marker=marker)
    return (*before, *(DIGITS,) * MOST_DIGITS, *behind)
