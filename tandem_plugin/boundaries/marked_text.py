"""The automaton that reads a text byte by byte, for its modes and the markers between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

DIGITS = -1
"""In a marker, the place of a digit; several in a row are a number of one digit or more."""

Marker: TypeAlias = tuple[int, ...]
"""A marker's bytes, with :data:`DIGITS` for the places of a number."""

_DIGIT_BYTES = range(0x30, 0x3A)


class _Place(NamedTuple):
    """The beginning of a marker that a text has just written."""

    marker: Marker
    length: int

    def after(self, byte: int) -> Iterator[_Place]:
        """The places behind the next byte: none if it does not continue the marker."""
        following = self.marker[self.length] if self.length < len(self.marker) else None
        if following == byte or (following == DIGITS and byte in _DIGIT_BYTES):
            yield _Place(self.marker, self.length + 1)
        elif self.in_number and following == DIGITS:  # a number of fewer digits
            end = self.length + self.marker[self.length :].count(DIGITS)
            if self.marker[end] == byte:
                yield _Place(self.marker, end + 1)

    @property
    def in_number(self) -> bool:
        return self.digits > 0

    @property
    def digits(self) -> int:
        """How many digits of a number end here; 0 behind one as well."""
        in_number = self.length > 0 and self.marker[self.length - 1] == DIGITS
        return self.marker[: self.length].count(DIGITS) if in_number else 0

    @property
    def past_number(self) -> bool:
        return DIGITS in self.marker[: self.length]


class _State(NamedTuple):
    """Where a text stands."""

    mode: int
    has_number: bool
    """Whether the marker that led to the mode has a number."""
    places: frozenset[_Place]
    """The beginnings of the mode's markers that the text has just written."""


@dataclass(frozen=True, slots=True, eq=False)
class Automaton:
    """A deterministic automaton; its states are ordered by mode, and state 0 begins a text."""

    samples: tuple[bytes, ...]
    """One byte of each kind: bytes of a kind do the same to every state."""
    table: NDArray[np.int64]
    """The state that follows: ``[kinds, states]``."""
    modes: NDArray[np.int64]
    """The mode of each state, ascending: ``[states]``."""
    digits: NDArray[np.int64]
    """How many digits of a marker's number the text before each state ends in: ``[states]``."""
    past_number: NDArray[np.bool_]
    """Whether the beginning of a marker that each state stands in has a number: ``[states]``."""
    has_number: NDArray[np.bool_]
    """Whether the marker that led to each state's mode has a number: ``[states]``."""
    kind_of_byte: bytes

    @property
    def counts(self) -> NDArray[np.bool_]:
        """Whether the text before each state ends in a number of a marker: ``[states]``."""
        return self.digits > 0

    @property
    def keeps_number(self) -> NDArray[np.bool_]:
        """Whether the number last read still belongs to a marker in each state: ``[states]``."""
        return self.past_number | self.has_number

    @property
    def size(self) -> int:
        """The number of states."""
        return len(self.modes)

    @property
    def has_numbers(self) -> bool:
        return bool(self.counts.any())

    def kinds(self, text: bytes) -> bytes:
        """The kind of each byte."""
        return text.translate(self.kind_of_byte)

    def states_of(self, mode: int) -> tuple[int, int]:
        """The first state of a mode, and the one after its last."""
        first, stop = np.searchsorted(self.modes, [mode, mode + 1])
        return int(first), int(stop)

    def effect(self, text: bytes) -> NDArray[np.int64]:
        """The state after a text, by the state before it: ``[states]``."""
        states = np.arange(self.size)
        for kind in self.kinds(text):
            states = self.table[kind][states]
        return states

    def splits_number(self, text: bytes) -> bool:
        """Whether a text holds digits of a marker's number that still count behind it, and more."""
        if not self.has_numbers or text.isdigit() or not any(b in _DIGIT_BYTES for b in text):
            return False
        states = np.arange(self.size)
        counted = np.zeros(self.size, dtype=np.bool_)
        for byte, kind in zip(text, self.kinds(text), strict=True):
            states = self.table[kind][states]
            fresh = self.counts[states] & (byte in _DIGIT_BYTES)
            counted = (counted | fresh) & self.keeps_number[states]
        return bool(counted.any())


def automaton_of(modes: Sequence[Mapping[Marker, int]]) -> Automaton:
    """The automaton of a text in the first of these modes.

    modes: for each, its markers and the modes that they lead to.
    """
    bytes_of_kind, kind_of_byte = _kinds(modes)
    following: dict[_State, list[_State]] = {}
    open_states = [_State(0, False, frozenset())]
    while open_states:
        state = open_states.pop()
        if state not in following:
            following[state] = [_next(state, byte, modes) for byte in bytes_of_kind]
            open_states += following[state]
    states = sorted(following, key=lambda state: (*state[:2], sorted(state.places)))
    place = {state: number for number, state in enumerate(states)}
    moves = [[place[after] for after in following[state]] for state in states]
    return Automaton(
        samples=tuple(bytes([byte]) for byte in bytes_of_kind),
        table=np.array(moves, dtype=np.int64).T.copy(),
        modes=np.array([state.mode for state in states], dtype=np.int64),
        digits=np.array(
            [max((place.digits for place in state.places), default=0) for state in states]
        ),
        past_number=np.array([any(place.past_number for place in s.places) for s in states]),
        has_number=np.array([state.has_number for state in states]),
        kind_of_byte=kind_of_byte,
    )


def _kinds(modes: Sequence[Mapping[Marker, int]]) -> tuple[list[int], bytes]:
    """One byte of each kind, and the kind of every byte: those in no marker are of one kind."""
    markers = [marker for marker_modes in modes for marker in marker_modes]
    literal = {byte for marker in markers for byte in marker if byte != DIGITS}
    digits = set(_DIGIT_BYTES) if any(DIGITS in marker for marker in markers) else set()
    apart = sorted(literal)
    kinds = {byte: kind for kind, byte in enumerate(apart)}
    samples = list(apart)
    for remaining in (
        sorted(digits - literal),
        sorted(set(range(256)) - literal - digits, key=_readable),
    ):
        if remaining:
            kinds |= dict.fromkeys(remaining, len(samples))
            samples.append(remaining[0])
    return samples, bytes(kinds[byte] for byte in range(256))


def _readable(byte: int) -> tuple[bool, int]:
    """An order of bytes that begins with lower-case letters."""
    return not 0x61 <= byte <= 0x7A, byte


def _next(state: _State, byte: int, modes: Sequence[Mapping[Marker, int]]) -> _State:
    markers = modes[state.mode]
    starts = (_Place(marker, 0) for marker in markers)
    reached = {after for place in (*state.places, *starts) for after in place.after(byte)}
    ended = [place.marker for place in reached if place.length == len(place.marker)]
    if ended:
        longest = max(ended, key=lambda marker: (len(marker), marker))
        return _State(markers[longest], DIGITS in longest, frozenset())
    return state._replace(places=frozenset(reached))
