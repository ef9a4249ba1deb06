"""What an engine measures of a step's rows: as `tandem eval legibility` and plain loops have it."""

from __future__ import annotations

import itertools
import math
import random
from types import SimpleNamespace

import pytest
import torch
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.engine.measures import (
    Measures,
    SampledRows,
    measured_steps,
    token_scores,
    totals,
)
from tandem_plugin.engine.runners.v2.state import End, ends_of, within
from tandem_plugin.engine.token_scores import RequestScores, TokenLog
from tandem_plugin.engine.wire import MeasureSums
from tandem_plugin.lab.evaluation.scoring import chunk_scores

VOCABULARY = 50_000
FIELDS = list(MeasureSums.__dataclass_fields__)


def logits(seed: int, rows: int, vocabulary: int = VOCABULARY) -> torch.Tensor:
    return 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("padding", [-64, 0, 128])
def test_scores_are_those_of_the_evaluation_of_legibility(padding: int) -> None:
    """padding: by how much the junior's vocabulary is longer than the senior's."""
    rows = 24
    senior, junior = logits(0, rows), logits(1, rows, VOCABULARY + padding)
    junior[:, :VOCABULARY] += senior[:, : VOCABULARY + padding] if padding <= 0 else senior
    tokens = torch.arange(rows) * 7
    found = token_scores(senior, junior, tokens)
    expected = chunk_scores(senior, junior, tokens)
    of_senior = chunk_scores(junior, senior, tokens).cross_entropy
    assert found.dtype == torch.float32
    assert 0.1 < float(expected.overlap.mean()) < 0.9
    assert float(expected.kl.mean()) > 0.1
    columns = [-of_senior, -expected.cross_entropy, *expected[1:]]
    torch.testing.assert_close(found.double(), torch.stack(columns, 1), atol=1e-5, rtol=0)


def test_tokens_that_the_senior_cannot_write_add_nothing() -> None:
    """A logit of minus infinity, as of a placeholder, or one so low that its probability is 0."""
    rows, possible = 6, 40
    senior, junior = logits(2, rows, 50), logits(3, rows, 50)
    senior[:, possible:45], senior[:, 45:] = -math.inf, -1e4
    found = token_scores(senior, junior, torch.arange(rows))
    own = senior[:, :possible].double().log_softmax(1)
    assert torch.isfinite(found).all()
    kl = torch.tensor(
        [
            sum(
                math.exp(p) * (p - q)
                for p, q in zip(
                    own[row].tolist(),
                    junior[row].log_softmax(0)[:possible].tolist(),
                    strict=True,
                )
            )
            for row in range(rows)
        ]
    )
    torch.testing.assert_close(found[:, 4], kl, atol=1e-5, rtol=0)
    entropy = -(own.exp() * own).sum(1)
    torch.testing.assert_close(found[:, 3].double(), entropy, atol=1e-5, rtol=0)


def test_totals_are_a_plain_loops_over_the_rows_that_wrote_in_tandem() -> None:
    scores = torch.rand(40, 5, generator=torch.Generator().manual_seed(0)) - 0.5
    authors, written = torch.arange(40) % 3 == 0, torch.arange(40) % 4 != 1
    scores[~written] = math.nan  # whatever rows without a token have
    expected = dict.fromkeys(FIELDS, 0.0)
    for (senior, junior, *more), author, counts in zip(
        scores.tolist(), authors.tolist(), written.tolist(), strict=True
    ):
        if counts and author:
            expected["senior_tokens"] += 1
            expected["junior_cross_entropy"] -= junior
            names = ("overlap", "senior_entropy", "kl_to_junior")
            for name, value in zip(names, more, strict=True):
                expected[name] += value
        elif counts:
            expected["junior_tokens"] += 1
            expected["senior_cross_entropy"] -= senior
    found = MeasureSums(*totals(scores, authors, written).tolist())
    assert found.to_row() == pytest.approx(expected)


def test_means_are_over_each_authors_own_tokens_and_left_out_without_any() -> None:
    sums = MeasureSums(4.0, 2.0, 3.0, 1.0, 0.5, 0.0, 0.0)
    assert sums.means() == {
        "junior_cross_entropy": 0.5, "overlap": 0.75, "senior_entropy": 0.25, "kl_to_junior": 0.125
    }  # fmt: skip
    assert MeasureSums().means() == {}


def test_sums_since_an_earlier_look_are_the_difference_or_all_after_a_restart() -> None:
    earlier = MeasureSums(2.0, 1.0, 1.5, 1.0, 0.5, 1.0, 0.5)
    later = MeasureSums(5.0, 2.0, 4.0, 1.5, 1.0, 1.0, 0.5)
    assert later.since(earlier) == MeasureSums(3.0, 1.0, 2.5, 0.5, 0.5, 0.0, 0.0)
    assert earlier.since(later) == earlier
    assert earlier + later == MeasureSums(7.0, 3.0, 5.5, 2.5, 1.5, 2.0, 1.0)


@pytest.mark.parametrize("every", [1, 2, 7, 64])
def test_one_step_of_every_so_many_is_measured_at_any_place_among_them(every: int) -> None:
    steps = measured_steps(every)
    rounds = [[next(steps) for _ in range(every)] for _ in range(40 * every)]
    assert all(sum(one) == 1 for one in rounds)
    places = [one.index(True) for one in rounds]
    assert set(places) == set(range(every))
    again = measured_steps(every)  # in another process of the same engine
    assert [next(again) for _ in range(every)].index(True) == places[0]
    assert not any(itertools.islice(measured_steps(0), 100))


def measured(config: dict[str, object], rows: int, most: int = VOCABULARY) -> Measures:
    """Measures of models whose hidden states are their logits, in chunks of rows."""
    measures = Measures(TandemConfig.from_mapping(config), 2**24 // most)
    measures.read_by(lambda states: states, lambda states: states)
    for step in range(3):
        assert measures.is_due()
        measures.keep(logits(2 * step, rows), logits(2 * step + 1, rows))
        kept = measures.take()
        assert kept is not None
        assert measures.take() is None
        numbers = torch.arange(rows)
        measures.add(
            kept,
            SampledRows(
                tokens=numbers,
                authors=numbers % 2 == 0,
                written=numbers != 3,
                positions=torch.full((rows,), step),
                names=[f"r{number}" if number < 4 else None for number in range(rows)],
            ),
        )
    return measures


def test_rows_are_measured_in_chunks_as_all_at_once() -> None:
    config = {"measure_every": 1}
    whole, chunked = (measured(config, 9, most).sums() for most in (100, 2))
    assert whole.senior_tokens == 15
    assert whole.junior_tokens == 9
    assert chunked.to_row() == pytest.approx(whole.to_row())


def test_scores_of_named_requests_are_kept_until_they_are_taken() -> None:
    asked = {"partner_logprobs": True}
    measures = measured(asked, 6)
    assert measures.take_tokens(["r0"]) == {}  # it never entered
    log = measures.token_log
    assert log is not None
    for name in ("r0", "r1", "r3", "r9"):
        log.begin(name)
    measures = Measures(TandemConfig.from_mapping(asked), VOCABULARY)
    measures.token_log = log
    for step in range(3):
        scores = torch.full((3, 3), float(step))
        positions, written = torch.tensor([step] * 3), torch.tensor([True, step != 1, False])
        log.add(["r0", "r1", "r3"], scores, positions, written)
    log.add(["r0"], torch.full((1, 3), 9.0), torch.tensor([2]), torch.tensor([True]))
    taken = log.take(["r0", "r1", "r3", "r9"])
    assert taken["r0"] == [[0.0] * 3, [1.0] * 3, [9.0] * 3]  # written again: the last counts
    assert taken["r1"] == [[0.0] * 3]  # what comes behind a gap is none of it
    assert taken["r3"] == taken["r9"] == []
    assert log.take(["r0"]) == {}


def test_many_steps_of_scores_are_copied_and_none_is_lost() -> None:
    log = TokenLog()
    log.begin("r")
    for step in range(1000):
        log.add(["r"], torch.full((1, 3), step / 8), torch.tensor([step]), torch.tensor([True]))
    assert log.take(["r"])["r"] == [[step / 8] * 3 for step in range(1000)]


def test_states_of_different_numbers_of_rows_are_refused() -> None:
    measures = Measures(TandemConfig(), VOCABULARY)
    with refused("measured-rows-differ"):
        measures.keep(torch.zeros(3, 4), torch.zeros(2, 4))


def test_a_response_with_an_unmeasured_token_is_refused() -> None:
    def workers(method: str, args: tuple[list[str]]) -> list[dict[str, list[list[float]]]]:
        assert method == "tandem_token_scores"
        return [{}, {name: [[-1.0, -2.0, 0.5]] * 3 for name in args[0]}]

    scores = RequestScores(workers)
    names = [scores.new_name() for _ in range(3)]
    assert len(set(names)) == 3
    found = scores.fetch({names[0]: 2, names[1]: 0})
    assert found[names[0]].shape == (2, 3)
    assert found[names[1]].shape == (0, 3)
    with refused("partner-logprobs-incomplete", length=4, measured=3):
        scores.fetch({names[2]: 4})


def test_what_is_written_behind_the_end_of_a_response_is_none_of_its_tokens() -> None:
    """Against a plain loop over responses of random tokens, some of which stop them."""
    rng = random.Random(0)
    for _ in range(200):
        ends = [
            End(rng.randint(1, 8), tuple(rng.sample(range(10), rng.randint(0, 2))))
            for _ in range(5)
        ]
        responses = [[rng.randrange(10) for _ in range(12)] for _ in ends]
        prompts = [[rng.randrange(10) for _ in range(4)] for _ in ends]  # may hold stop tokens
        positions = [rng.randrange(9) for _ in ends]
        before = [
            (prompt + response[:position])[::-1][:4]
            for prompt, response, position in zip(prompts, responses, positions, strict=True)
        ]
        found = within(
            torch.from_numpy(ends_of(ends)), torch.tensor(positions), torch.tensor(before)
        )
        for end, response, position, is_in in zip(
            ends, responses, positions, found.tolist(), strict=True
        ):
            near = response[max(0, position - 4) : position]
            assert is_in == (position < end.limit and not set(near) & set(end.stops))


def test_a_response_ends_as_its_sampling_parameters_say() -> None:
    params = SimpleNamespace(eos_token_id=2, stop_token_ids=[5, 6])
    assert End.of(params, 9) == End(9, (2, 5, 6))
    assert End.of(SimpleNamespace(stop_token_ids=None), 3) == End(3, ())
    assert ends_of([]).shape == (0, 1)
