"""Marked parts of a text, with limits: the automaton of handoffs that a text decides.

A step of such a schedule is a dozen operations; two of them read a table. So its cost in an engine
and in a replay is close to the word schedule's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.markers import MOST_DIGITS, Markers
from tandem_plugin.errors import ConfigError
from tandem_plugin.lookup import Lookup

MOST_TOKENS = 2**15 - 2
"""The most tokens of a part: the size of a table."""
MOST_PARTS = 2**20
"""The most parts of a text."""
_IN_PART = 2**62
"""What a run loses when a part begins, and gains when it ends: it is negative in parts."""
_POWER = 10**MOST_DIGITS
"""More than every number of a marker."""


class MarkedParts:
    """A text's position in the parts of one mode, as a run of a schedule.

    A part begins behind the token that ends a marker of the mode. It ends behind the token that
    leads to a mode other than its own, or when it has as many tokens as its marker's number
    (``{n}``), or ``most``; then the text continues in its first mode. A marker of 0 tokens
    begins no part, and behind ``parts`` parts none does.

    A *run* is int64, 0 at the start of a text and negative in a part. Its lowest bits are the place
    of the text in the markers' automaton; then follow a counter (the tokens left of a part, or the
    digits of a number) and the number of parts so far.
    """

    def __init__(self, markers: Markers, mode: str, *, most: int, parts: int) -> None:
        """Raises :class:`ConfigError` for a limit out of range, and for a mode without parts."""
        _check_limit("most", most, MOST_TOKENS)
        _check_limit("parts", parts, MOST_PARTS)
        self._markers, self._most = markers, most
        self._inside = _places_inside(markers, mode)
        highest = 4 * _POWER - 1 if markers.numbers else 0  # of the digits of a number
        self._mark = max(most, highest) + 1
        """Added to the counter by a token that leads into the mode, or out of it."""
        counter_bits = (self._mark + max(most, highest)).bit_length()
        self._bits = markers.place_bits
        low_bits = self._bits + counter_bits
        self._one_part = 1 << low_bits
        self._limit = parts << low_bits
        self._places, self._low_mask = 1 << self._bits, (1 << low_bits) - 1
        self._steps = Lookup(self._step_table())
        self._settled = Lookup(self._settling_table(counter_bits))

    def advance(self, run: Any, token_class: Any) -> Any:
        """The runs after the next token.

        run, token_class: int64, arrays or tensors of one shape. Returns int64 of that shape.
        """
        entry = token_class * self._places | (run & (self._places - 1))  # faster than a shift
        run = run + self._steps(entry) * (run < self._limit)  # behind the last part all stands
        return run + self._settled(run & self._low_mask)

    def _step_table(self) -> NDArray[np.int64]:
        """What a token adds to a run, by its class and the place before it."""
        markers, size = self._markers, self._markers.automaton.size
        before, after = np.arange(size), markers.moves
        was_inside, is_inside = self._inside[before], self._inside[after]
        counter = np.where(was_inside & is_inside, -1, 0)
        counter += np.where(was_inside != is_inside, self._mark, 0)
        counter[len(markers.classes) - len(markers.numbers) :] += self._digits()
        table = np.zeros((len(markers.classes), self._places), dtype=np.int64)
        table[:, :size] = (counter << self._bits) + after - before
        return table

    def _digits(self) -> NDArray[np.int64]:
        """What the digits of a number add to the counter: ``[numbers, places]``.

        The counter has the number with zeros at its end, as if all of its digits were read, and in
        thousands how many were. So digits are added, wherever they stand.
        """
        markers = self._markers
        after = markers.moves[len(markers.classes) - len(markers.numbers) :]
        read = markers.automaton.digits[after]
        digits = np.zeros_like(after)
        for row, number in enumerate(markers.numbers):
            missing_digits = 10 ** (MOST_DIGITS - np.maximum(read[row], len(number)))
            digits[row] = np.where(
                read[row], len(number) * _POWER + int(number) * missing_digits, 0
            )
        return digits

    def _settling_table(self, counter_bits: int) -> NDArray[np.int64]:
        """What is added to a run behind each token, by its place and counter.

        Parts begin and end here, and digits of what is no marker are dropped.
        """
        automaton = self._markers.automaton
        place = np.arange(automaton.size)
        counter = np.arange(1 << counter_bits)[:, None]
        crossed, digits = counter >= self._mark, counter - self._mark
        number = digits % _POWER // 10 ** np.clip(MOST_DIGITS - digits // _POWER, 0, MOST_DIGITS)
        number = np.where(automaton.has_number, np.minimum(number, self._most), self._most)
        inside = self._inside[place]
        begins, is_over = inside & crossed & (number > 0), inside & (counter == 0)
        reads_number = ~inside & ~crossed & automaton.past_number
        next_counter = np.where((inside & ~crossed) | reads_number, counter, 0)
        next_counter = np.where(begins, number, next_counter)
        first_mode = is_over | (inside & crossed & (number == 0))
        low = np.where(first_mode, 0, (next_counter << self._bits) | place)
        added = low - ((counter << self._bits) | place)
        added += begins * (self._one_part - _IN_PART) + (is_over | (~inside & crossed)) * _IN_PART
        table = np.zeros((1 << counter_bits, self._places), dtype=np.int64)
        table[:, : automaton.size] = added
        return table


@lru_cache(maxsize=64, typed=True)
def marked_parts(markers: Markers, mode: str, most: int, parts: int) -> MarkedParts:
    """The same :class:`MarkedParts` for the same arguments, for the steps of a schedule."""
    return MarkedParts(markers, mode, most=most, parts=parts)


def _places_inside(markers: Markers, mode: str) -> NDArray[np.bool_]:
    """Which places of the automaton are in the mode: bool ``[places]``."""
    automaton, number = markers.automaton, markers.modes.index(mode) if mode in markers.modes else 0
    inside: NDArray[np.bool_] = automaton.modes == number
    # A number would begin within a part, or begin before the one that is read has ended.
    starts = (automaton.digits[automaton.table] == 1) & (automaton.digits == 0)
    if number == 0 or (starts & (inside | automaton.past_number)).any():
        raise ConfigError("part-mode-invalid", mode=mode)
    return inside


def _check_limit(name: str, limit: object, largest: int) -> None:
    if type(limit) is not int or not 1 <= limit <= largest:
        raise ConfigError("part-limit-invalid", name=name, limit=limit, largest=largest)
