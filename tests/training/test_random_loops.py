"""Random agent loops, what an independent reading says of their authors, and what tandem makes.

No token is trained under a wrong author, and no loop stops needlessly. Few different tokens, short
calls: candidates coincide all the time. Explanations are walked through by plain Python, authors
are Algorithm 1's over draws in plain Python; neither uses the package.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count

import numpy as np
import pytest
from algorithm_1 import algorithm_1
from philox import draws

from tandem_plugin import AuthorshipError, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training import response_authorship
from tandem_plugin.training.authorship_wire import ResponseAuthorship
from tandem_plugin.training.calls import Trajectory
from tandem_plugin.training.checks import check_rows
from tandem_plugin.training.rows import Row

PIECES = ("Ġa", "b", "Ġc", "d")
BOUNDARIES, P, CAP = frozenset({0, 2}), 0.5, 2


@dataclass
class Generated:
    """A generate call: where in the text it was sent, and what it wrote."""

    context: int
    tokens: list[int]


@dataclass
class Loop:
    """An agent loop's text; every token knows the call that wrote it, if one did."""

    prompt: list[int]
    calls: list[Generated] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    writers: list[tuple[int, int] | None] = field(default_factory=list)
    """(number of the call, place in its tokens) of each response token."""
    mask: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    """Where turns began: an output of its own may begin there."""
    begin: int = 0
    stop: int = 0
    """The response is what lies between; what lies before is its prompt."""
    sent: list[list[int]] = field(default_factory=list)
    """What each call was sent."""


def random_loop(rng: random.Random) -> Loop:
    """Turns of several candidates, retries, side calls, tools, masked tokens, cuts, truncation."""
    letters = rng.randint(1, 4)

    def tokens(most: int) -> list[int]:
        return [rng.randrange(letters) for _ in range(rng.randint(0, most))]

    loop = Loop(tokens(2))

    def generate(written: list[int], context: int) -> int:
        loop.calls.append(Generated(context, written))
        loop.sent.append([*loop.prompt, *loop.text[:context]])
        return len(loop.calls) - 1

    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(("one", "retry", "best of n", "same beginning", "search"))
        candidates = []
        shared = tokens(5)
        for _ in range(1 if kind == "one" else rng.randint(2, 4)):
            written = shared + tokens(3) if kind == "same beginning" else tokens(8)
            candidates.append(generate(written, len(loop.text)))
            if kind == "search":  # goes on from within its own text, which is not there yet
                branch = loop.calls[-1].tokens
                loop.calls.append(Generated(len(loop.text), tokens(4)))
                loop.sent.append([*loop.prompt, *loop.text, *branch[: rng.randint(0, len(branch))]])
        if rng.random() < 0.3:  # a side call on an earlier context
            generate(tokens(6), rng.randint(0, len(loop.text)))
        kept = candidates[-1] if kind == "retry" else rng.choice(candidates)
        written = loop.calls[kept].tokens
        length = len(written) if rng.random() < 0.6 else rng.randint(0, len(written))
        turn_is_masked, hidden = rng.random() < 0.1, rng.random() < 0.2
        loop.starts.append(len(loop.text))
        for place in range(length):
            loop.text.append(written[place])
            loop.writers.append((kept, place))
            loop.mask.append(int(not turn_is_masked and not (hidden and rng.random() < 0.3)))
        tool = tokens(2) if rng.random() < 0.5 else []
        loop.text += tool
        loop.writers += [None] * len(tool)
        loop.mask += [0] * len(tool)
    loop.begin = rng.choice(loop.starts) if rng.random() < 0.2 else 0
    loop.stop = len(loop.text)
    if rng.random() < 0.3:  # the trainer cuts the response off
        loop.stop = rng.randint(loop.begin, len(loop.text))
    return loop


def authors(tokens: Sequence[int], seed: int) -> list[int]:
    """1 where the senior writes."""
    uniforms = draws(seed, len(tokens) + 1)
    return algorithm_1(tokens, BOUNDARIES, CAP, P, uniforms) if tokens else []


def possible_authors(loop: Loop, written_by: Sequence[Sequence[int]]) -> list[set[int]]:
    """The authors that each response token has in some explanation of all that is trained.

    An explanation goes through the text from its start: it leaves out a token that is not trained,
    or lets a call that was sent what lies before write some of its tokens.
    written_by: the authors of each call's tokens.
    """
    text = [*loop.prompt, *loop.text[: loop.stop]]
    before = len(loop.prompt) + loop.begin
    trained = [0] * before + loop.mask[loop.begin : loop.stop]
    steps: list[list[tuple[int, int | None]]] = [[] for _ in text]  # (to, the call that writes)
    for place in range(len(text)):
        if not trained[place]:
            steps[place].append((place + 1, None))
    for number, (call, sent) in enumerate(zip(loop.calls, loop.sent, strict=True)):
        start = len(sent)
        if text[:start] != sent:
            continue
        for length in range(1, len(call.tokens) + 1):
            if text[start : start + length] != call.tokens[:length]:
                break
            steps[start].append((start + length, number))
    reached, ends = {0}, {len(text)}
    for place in range(len(text)):
        if place in reached:
            reached |= {to for to, _ in steps[place]}
    for place in reversed(range(len(text))):
        if any(to in ends for to, _ in steps[place]):
            ends.add(place)
    found: list[set[int]] = [set() for _ in text]
    for place in reached:
        for to, number in steps[place] if place < len(text) else ():
            if number is not None and to in ends:
                for at in range(place, to):
                    found[at].add(written_by[number][at - place])
    return found[before:]


@cache
def rules(share: float) -> TandemRules:
    """Those of a run with ``max_unknown_share``."""
    settings = {"schedule": "word", "p": P, "cap": CAP}
    config = TandemConfig.from_mapping({**settings, "max_unknown_share": share})
    return TandemRules(config, Vocabulary(PIECES, "a test"))


@dataclass(frozen=True)
class Outcome:
    """What became of one loop's tokens that it would train."""

    known: int
    unknown: int
    wrong: int
    """Those that have another author than the call that wrote them."""
    needless: int
    """Those that are unknown though all explanations agree, or known though two differ."""
    stopped: bool
    """Whether the trainer stops, with the default of ``max_unknown_share``."""
    stopped_rightly: bool


def judged(loop: Loop, first_seed: int, order: Callable[[list[int]], None]) -> Outcome:
    """Run the loop through a trajectory, its facts on the wire and the trainer's checks.

    order: shuffles the calls' numbers, in which they come back.
    """
    run = rules(0.1)
    trajectory = Trajectory(run.default, lambda call: first_seed + call)
    begun = [trajectory.call(sent) for sent in loop.sent]
    back = list(range(len(begun)))
    order(back)
    for number in back:
        begun[number].returned(loop.calls[number].tokens)
    prompt = [*loop.prompt, *loop.text[: loop.begin]]
    response, mask = (column[loop.begin : loop.stop] for column in (loop.text, loop.mask))
    facts = trajectory.facts(prompt, response, mask)
    assert facts is not None
    facts = ResponseAuthorship.from_wire(json.loads(json.dumps(facts.to_wire())))
    assert facts is not None

    written_by = [authors(c.tokens, first_seed + n) for n, c in enumerate(loop.calls)]
    possible = possible_authors(loop, written_by)
    unknown, known, wrong, needless = 0, 0, 0, 0
    for place, bit in enumerate(mask):
        writer = loop.writers[loop.begin + place]
        trains = bool(facts.mask[place]), bool(facts.junior_mask[place])
        if not bit:
            needless += any(trains) or bool(facts.unknown_mask[place])
            continue
        assert writer is not None
        senior = bool(written_by[writer[0]][writer[1]])
        is_open = len(possible[place]) > 1
        unknown, known = unknown + is_open, known + (not is_open)
        needless += bool(facts.unknown_mask[place]) != is_open
        wrong += trains != ((False, False) if is_open else (senior, not senior))
    stopped = _stops(facts, response, 0.1)
    assert not _stops(facts, response, 1.0)
    return Outcome(known, unknown, wrong, needless, stopped, unknown > 0.1 * (sum(mask) + 1))


def _stops(facts: ResponseAuthorship, response: list[int], share: float) -> bool:
    """Whether the trainer stops at the loop's row beside one of one token of the senior's."""
    run = rules(share)
    seed = next(seed for seed in count(10**9) if authors([0], seed) == [1])  # no loop's
    whole = ((0, 1),)
    one = ResponseAuthorship(
        run.fingerprint, run.default.settings(), seed, 1, ((seed, 0, 1),), whole, whole
    )
    each = ((facts, response), (one, [0]))
    rows = [Row("a row", "g", np.array(ids, np.int64), of.mask, of, of.mask) for of, ids in each]
    try:
        check_rows(rows, run)
    except AuthorshipError as stop:
        if stop.code != "unknown-authors-too-many":
            raise
        return True
    return False


LOOPS = 900


def test_trained_tokens_have_the_author_that_wrote_them_and_unknown_ones_are_left_out() -> None:
    outcomes = []
    for number in range(LOOPS):
        rng = random.Random(number)
        outcomes.append(judged(random_loop(rng), 1000 * number, rng.shuffle))
    assert sum(one.wrong for one in outcomes) == 0
    assert sum(one.needless for one in outcomes) == 0
    assert [one.stopped for one in outcomes] == [one.stopped_rightly for one in outcomes]
    assert sum(one.unknown > 0 for one in outcomes) > LOOPS / 10
    assert sum(one.unknown == 0 for one in outcomes) > LOOPS / 10


def test_loops_would_show_an_author_that_was_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_authorship, "_unknown", lambda trained, parts: trained & False)
    wrong = 0
    for number in range(LOOPS // 9):
        rng = random.Random(number)
        wrong += judged(random_loop(rng), 1000 * number, rng.shuffle).wrong
    assert wrong > 0
