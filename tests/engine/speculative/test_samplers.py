"""Rounds of drafting by the package's own rules, on two small Markov models: lockstep's exact law.

The engine around the rules is played here: its drafts, its rejection sampling, rounds of any
length, tokens without drafts. The law of every response with its authors is enumerated from
Algorithm 1, and for a schedule of token classes from its transitions.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from automata import DRAW, JUNIOR, KEEP, SENIOR, automaton_rule, transitions
from host_memory import host_memory
from scipy import stats

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.engine.speculative import samplers
from tandem_plugin.engine.speculative.authors import ChainAuthors
from tandem_plugin.engine.speculative.samplers import (
    AuthorRejectionSampler,
    force_kept_drafts,
    has_empty_residual,
    is_juniors_bonus,
    kept_drafts,
    of_rows,
)
from tandem_plugin.rules import Rule

PIECES = ("Ġa", "b", "c", "d", "e")
SIZE, LENGTH, DRAFTS, P, CAP = 3_000, 4, 2, 0.5, 1
START = len(PIECES)  # the context of a response's first token
SIGNIFICANCE = 1e-4
CPU = torch.device("cpu")


@dataclass(frozen=True)
class World:
    """Both models' logits after each last token, and what a request asks of them."""

    senior: torch.Tensor
    junior: torch.Tensor
    temperature: float
    top_p: float

    def processed(self, senior: bool) -> torch.Tensor:
        """Rows of logits after each last token: temperature and top-p applied."""
        return self._masked(self.senior if senior else self.junior) / self.temperature

    def drafts(self) -> torch.Tensor:
        """The junior's logits with the request's mask, before the temperature."""
        return self._masked(self.junior)

    def _masked(self, logits: torch.Tensor) -> torch.Tensor:
        p, order = (logits / self.temperature).softmax(-1).sort(-1, descending=True)
        dropped = p.cumsum(-1) - p > self.top_p
        return logits.masked_fill(dropped.gather(-1, order.argsort(-1)), -torch.inf)


def world(temperature: float, top_p: float) -> World:
    generator = torch.Generator().manual_seed(5)
    junior = torch.randn(START + 1, len(PIECES), generator=generator) * 1.5
    senior = junior + torch.randn(START + 1, len(PIECES), generator=generator)
    return World(senior, junior, temperature, top_p)


WORLDS = {"temperature 1": world(1.0, 1.0), "temperature 0.6, top-p 0.9": world(0.6, 0.9)}


Step = Callable[[bool, int, int], tuple["bool | None", int]]
"""The author of the next token, None if it is drawn, and the state, after an author's token."""


def word_step(author: bool, run: int, token: int) -> tuple[bool | None, int]:
    """Algorithm 1."""
    return (None, 0) if token == 0 or run >= CAP else (author, run + 1)


NUMBER = 27
PLAIN_TABLE = automaton_rule(NUMBER, len(PIECES), P).boundaries.table.tolist()


def automaton_step(author: bool, state: int, token: int) -> tuple[bool | None, int]:
    """The transitions of an automaton over token classes."""
    state, action = transitions(NUMBER)[state, PLAIN_TABLE[token]].tolist()
    return {KEEP: author, SENIOR: True, JUNIOR: False, DRAW: None}[action], state


def word_rule() -> Rule:
    config = TandemConfig.from_mapping({"schedule": "word", "p": P, "cap": CAP})
    return TandemRules(config, Vocabulary(PIECES, "a test")).default


RULES = {
    "word": (word_rule(), word_step),
    "token classes": (automaton_rule(NUMBER, len(PIECES), P), automaton_step),
}


@pytest.fixture(params=RULES, scope="module")
def rule(request: pytest.FixtureRequest) -> Rule:
    return RULES[request.param][0]


def law(of: World, rule: Rule) -> dict[Any, float]:
    """The probability of every response and its authors, by a plain loop over the schedule."""
    (step,) = (step for made, step in RULES.values() if made is rule)
    rows = {author: of.processed(author).double().softmax(-1).numpy() for author in (True, False)}
    found: dict[Any, float] = {}
    for tokens in itertools.product(range(len(PIECES)), repeat=LENGTH):
        weights = {((author,), author, 0): P if author else 1 - P for author in (True, False)}
        for t, token in enumerate(tokens):
            following: Counter[Any] = Counter()
            for (authors, author, state), weight in weights.items():
                w = weight * rows[author][tokens[t - 1] if t else START][token]
                chosen, after = step(author, state, token)
                if t == LENGTH - 1:
                    following[authors, author, 0] += w
                elif chosen is None:
                    following[(*authors, True), True, after] += w * P
                    following[(*authors, False), False, after] += w * (1 - P)
                else:
                    following[(*authors, chosen), chosen, after] += w
            weights = dict(following)
        for (authors, _, _), weight in weights.items():
            if weight:
                found[tokens, authors] = found.get((tokens, authors), 0.0) + weight
    return found


@dataclass(frozen=True)
class Rules:
    """What a round goes by; another for an engine that is wrong."""

    kept_drafts: Callable[..., torch.Tensor] = kept_drafts
    is_juniors_bonus: Callable[..., torch.Tensor] = is_juniors_bonus
    undrafted_by_author: bool = True
    reads_drafts: bool = True


def sample(logits: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]


def play(of: World, rule: Rule, rules: Rules) -> list[Any]:
    """Responses of an engine that goes by these rules, with the authors that replay gives them."""
    generator = torch.Generator().manual_seed(11)
    positions = LENGTH + 2 * DRAFTS + 4
    authors = ChainAuthors(SIZE, len(PIECES), CPU, host_memory, record=False)
    for slot in range(SIZE):
        authors.add(slot, rule, 900_000 + slot, [], positions)
    authors.write_staged()
    slots, target = torch.arange(SIZE), of.processed(senior=True)
    tokens = torch.full((SIZE, positions), START)
    length = torch.zeros(SIZE, dtype=torch.int64)
    first = True
    while int(length.min()) < LENGTH:
        last = torch.where(length > 0, tokens[slots, (length - 1).clamp(min=0)], START)
        num_drafts = torch.randint(0, DRAFTS + 1, (SIZE,), generator=generator)
        num_drafts = num_drafts * (not first)
        first = False
        running = length < LENGTH
        drafts = torch.zeros(SIZE, DRAFTS, dtype=torch.int64)
        contexts = [last]
        for step in range(DRAFTS):
            logits = of.drafts()[contexts[-1]] / of.temperature
            drafts[:, step] = sample(logits, generator)
            contexts.append(drafts[:, step])
        chain = authors.chain_authors(drafts if rules.reads_drafts else drafts.flip(0))
        is_kept = rules.kept_drafts(chain, num_drafts)
        # One row of logits a draft, and one behind the last.
        steps = torch.arange(DRAFTS + 1)
        rows = (steps <= num_drafts[:, None]).nonzero()
        places = torch.full((SIZE, DRAFTS + 1), -1)
        places[rows[:, 0], rows[:, 1]] = torch.arange(len(rows))
        processed = target[torch.stack(contexts, 1)[rows[:, 0], rows[:, 1]]]
        undrafted = (num_drafts == 0) & ~authors.of(slots) & rules.undrafted_by_author
        processed[places[undrafted, 0]] = of.processed(senior=False)[last[undrafted]]
        following = torch.nn.functional.pad(drafts, (0, 1))[rows[:, 0], rows[:, 1]][:, None]
        checked = force_kept_drafts(processed, of_rows(is_kept, rows[:, 0], rows[:, 1]), following)
        fresh, count = check(of, checked, places, drafts, contexts, num_drafts, generator)
        count = count - rules.is_juniors_bonus(chain, num_drafts, count).long()
        count = count * running
        for step in range(DRAFTS + 1):
            on = step < count
            tokens[slots[on], length[on] + step] = fresh[on, step]
        length = length + count
        ends = tokens[slots, (length - 1).clamp(min=0)]
        authors.advance(slots, count, ends)
    responses = tokens[:, :LENGTH].tolist()
    replayed = rule.replay_batch(responses, [900_000 + slot for slot in range(SIZE)])
    return [
        (tuple(response), tuple(bool(author) for author in authorship.senior))
        for response, authorship in zip(responses, replayed, strict=True)
    ]


def check(
    of: World,
    checked: torch.Tensor,
    places: torch.Tensor,
    drafts: torch.Tensor,
    contexts: list[torch.Tensor],
    num_drafts: torch.Tensor,
    generator: torch.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rejection sampling as vLLM's kernels do it: tokens ``[size, k + 1]`` and how many."""
    fresh = torch.zeros(SIZE, DRAFTS + 1, dtype=torch.int64)
    count = torch.zeros(SIZE, dtype=torch.int64)
    going = torch.ones(SIZE, dtype=torch.bool)
    for step in range(DRAFTS + 1):
        row = checked[places[:, step].clamp(min=0)]
        drafted, p = step < num_drafts, row.softmax(-1)
        if step < DRAFTS:
            q = (of.drafts()[contexts[step]] / of.temperature).softmax(-1)
            token = drafts[:, step : step + 1]
            u = torch.rand(SIZE, generator=generator)
            accepted = (p.gather(1, token) > u[:, None] * q.gather(1, token))[:, 0] & drafted
            rest = torch.where(drafted[:, None], (p - q).clamp(min=0), p)
        else:
            accepted, rest, token = torch.zeros(SIZE, dtype=torch.bool), p, drafts[:, :1]
        other = torch.multinomial(rest + 1e-30, 1, generator=generator)
        written = torch.where(accepted[:, None], token, other)[:, 0]
        fresh[:, step] = written
        count = count + going
        going = going & accepted
    return fresh, count


def p_values(of: World, rule: Rule, rules: Rules) -> list[float]:
    """Chi-square tests of windows of tokens and authors against the exact law.

    With 3,000 responses, the test of one position has a power of 0.9 at this significance against
    an effect of w = 0.12, the root of the sum of (p - q)^2 / q over its ten cells.
    """
    exact, responses = law(of, rule), play(of, rule, rules)
    found = []
    for start, stop in [(t, t + 1) for t in range(LENGTH)] + [(0, 3), (1, 4)]:
        expected: Counter[Any] = Counter()
        for (tokens, authors), weight in exact.items():
            expected[tokens[start:stop], authors[start:stop]] += weight * SIZE
        counts = Counter((tokens[start:stop], authors[start:stop]) for tokens, authors in responses)
        if set(counts) - set(expected):
            found.append(0.0)  # a response that cannot be
            continue
        apart = [value for value, weight in expected.items() if weight >= 10]
        cells = np.array([expected[value] for value in apart])
        seen = np.array([counts[value] for value in apart])
        cells, seen = np.append(cells, SIZE - cells.sum()), np.append(seen, SIZE - seen.sum())
        if cells[-1] < 10:
            cells = np.append(cells[:-2], cells[-2:].sum())
            seen = np.append(seen[:-2], seen[-2:].sum())
        found.append(float(stats.chi2.sf(((seen - cells) ** 2 / cells).sum(), len(cells) - 1)))
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_rounds_of_any_length_follow_the_exact_law(name: str, rule: Rule) -> None:
    assert sum(law(WORLDS[name], rule).values()) == pytest.approx(1)
    assert min(p_values(WORLDS[name], rule, Rules())) > SIGNIFICANCE


def test_models_that_agree_follow_it_too(rule: Rule) -> None:
    of = WORLDS["temperature 1"]
    assert min(p_values(replace(of, senior=of.junior), rule, Rules())) > SIGNIFICANCE


def nothing(authors: torch.Tensor, num_drafts: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(num_drafts, dtype=torch.bool)


def no_draft(authors: torch.Tensor, num_drafts: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(authors[:, :-1])


def every_draft(authors: torch.Tensor, num_drafts: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(authors[:, :-1])


@pytest.mark.parametrize(
    "wrong",
    [
        Rules(is_juniors_bonus=nothing),
        Rules(kept_drafts=no_draft),
        Rules(kept_drafts=every_draft),
        Rules(undrafted_by_author=False),
    ],
    ids=[
        "a token behind the drafts whoever writes it",
        "the junior's drafts checked by the senior",
        "the senior's drafts unchecked",
        "undrafted tokens always the senior's",
    ],
)
def test_an_engine_that_goes_by_a_wrong_rule_is_noticed(wrong: Rules, rule: Rule) -> None:
    assert min(p_values(WORLDS["temperature 1"], rule, wrong)) < SIGNIFICANCE


def test_authors_of_other_tokens_than_the_drafts_are_noticed() -> None:
    """With a schedule of token classes, whose authors follow every draft."""
    rule, _ = RULES["token classes"]
    wrong = Rules(reads_drafts=False)
    assert min(p_values(WORLDS["temperature 1"], rule, wrong)) < SIGNIFICANCE


def test_rejection_that_leaves_nothing_is_noticed_where_rows_agree_to_the_bit() -> None:
    draft = torch.tensor([[0.3, -2.0, 1.1, -torch.inf]]).repeat(4, 1)
    temperature = torch.tensor([0.7, 0.7, 0.0, 1.0])
    target = draft / torch.tensor([0.7, 0.7, 1.0, 1.0])[:, None]
    target[1, 0] += 0.01
    assert has_empty_residual(target, draft, temperature).tolist() == [True, False, False, True]


class Sampler:
    """vLLM's, with a temperature of one half for every request."""

    use_fp64_gumbel = False

    def __init__(self) -> None:
        prompts = torch.full((2,), 5)
        self.req_states = SimpleNamespace(prefill_len=SimpleNamespace(gpu=prompts))
        half, seeds = torch.full((2,), 0.5), torch.zeros(2, dtype=torch.int64)
        self.sampling_states = SimpleNamespace(
            temperature=SimpleNamespace(gpu=half), seeds=SimpleNamespace(gpu=seeds)
        )
        self.input_ids: list[list[int]] = []
        self.lengths: list[Any] = []

    def apply_sampling_params(
        self, logits: torch.Tensor, *, input_ids: torch.Tensor, seq_lens_upper_bound_np: Any = None,
        **layout: Any,
    ) -> torch.Tensor:  # fmt: skip
        self.input_ids.append(input_ids.tolist())
        self.lengths.append(seq_lens_upper_bound_np)
        return logits / 0.5


T, A, B, C = 6, 1, 2, 3
KEPT = torch.tensor([[False] * 3, [False, True, False]])
"""Of slot 1, whose request has the drafts A, B and C after the token T; B is the junior's."""


def verify(
    monkeypatch: pytest.MonkeyPatch, logits: torch.Tensor, draft_logits: torch.Tensor,
    num_sampled: int, kept: torch.Tensor | None = KEPT, **newer: Any,
) -> tuple[Any, dict[str, Any], Sampler]:  # fmt: skip
    """A round of one request: its result, vLLM's rejection sampling's arguments, the sampler."""
    given: dict[str, Any] = {}

    def rejection_sample(**arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        given.update(arguments)
        return torch.tensor([[A, B, 0, 0]]), torch.tensor([num_sampled])

    monkeypatch.setattr(samplers, "rejection_sample", rejection_sample)
    config = SimpleNamespace(
        num_speculative_tokens=3, enable_adaptive_verification=False,
        rejection_sample_method="standard",
    )  # fmt: skip
    sampler = Sampler()
    nobody: Any = None
    made: Any = AuthorRejectionSampler(nobody, sampler, config, CPU)
    made._kept_drafts = kept
    result = made._verify(
        logits, draft_logits, torch.tensor([T, A, B, C]), torch.arange(8, 12),
        torch.tensor([0, 4]), torch.tensor([1]), np.array([1]), torch.full((4,), 1),
        torch.arange(4), *newer.values(),
    )  # fmt: skip
    return result, given, sampler


def test_rows_of_a_round_are_those_drawn_beside_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """All probability on B, which the junior wrote; the senior's own logits everywhere else."""
    logits = torch.randn(4, 7)
    (processed, sampled, num_sampled), given, _ = verify(
        monkeypatch, logits, torch.zeros(2, 3, 7), num_sampled=4
    )
    target, certain = given["target_logits"], torch.full((7,), -torch.inf)
    certain[B] = 0.0
    assert torch.equal(processed, logits / 0.5)
    for row in (0, 2, 3):
        assert torch.equal(target[row], processed[row])
    assert torch.equal(target[1], certain)
    assert given["draft_sampled"].tolist() == [T, A, B, C]
    assert (sampled.tolist(), num_sampled.tolist()) == ([[A, B, 0, 0]], [4])


@pytest.mark.parametrize("is_empty", [True, False])
def test_the_recovered_token_of_an_empty_residual_is_the_rejected_draft(
    is_empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C, rejected although both models' rows agree to the bit; vLLM writes token 0."""
    logits, draft_logits = torch.randn(4, 7), torch.zeros(2, 3, 7)
    draft_logits[1, 2] = logits[2]
    if not is_empty:
        draft_logits[1, 2, 4] += 1.0
    (_, sampled, _), _, _ = verify(monkeypatch, logits, draft_logits, num_sampled=3)
    assert sampled.tolist() == [[A, B, C if is_empty else 0, 0]]


def test_newer_vllms_lengths_reach_the_sampler_and_their_forbidden_drafts_the_rejection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From 0.31 and from 0.32: a draft that a grammar forbids is -1 where drafts are verified."""
    lengths, verified = np.array([12]), torch.tensor([T, A, B, -1])
    _, given, sampler = verify(
        monkeypatch, torch.randn(4, 7), torch.zeros(2, 3, 7), 4, lengths=lengths, verified=verified
    )
    assert sampler.lengths[0] is lengths
    assert sampler.input_ids == [[T, A, B, C]]
    assert given["draft_sampled"].tolist() == [T, A, B, -1]


@pytest.mark.parametrize("is_newer", [False, True])
def test_a_step_of_the_senior_alone_is_vllms_own(
    is_newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names of its arguments, those of a newer vLLM among them."""
    given: dict[str, Any] = {}
    own = "vLLM's"

    def verify_of_vllm(self: Any, **arguments: Any) -> Any:
        given.update(arguments)
        return own

    monkeypatch.setattr(samplers.RejectionSampler, "_verify", verify_of_vllm)
    newer = {"lengths": np.array([12]), "verified": torch.tensor([T, A, B, -1])}
    result, rejected, _ = verify(
        monkeypatch, torch.randn(4, 7), torch.zeros(2, 3, 7), 4, kept=None,
        **(newer if is_newer else {}),
    )  # fmt: skip
    assert (result, rejected) == (own, {})
    assert given["draft_sampled"].tolist() == [T, A, B, C]
    assert ("seq_lens_upper_bound_np" in given) is is_newer
    verified = given.get("verify_draft_sampled")
    assert (None if verified is None else verified.tolist()) == (
        [T, A, B, -1] if is_newer else None
    )
