from __future__ import annotations

import numpy as np
import pytest
from refused import refused

torch = pytest.importorskip("torch")

from tandem_plugin.lab.evaluation.legibility import (  # noqa: E402
    chunk_length,
    chunk_scores,
    score_response,
)


def direct(senior: np.ndarray, junior: np.ndarray, targets: list[int]) -> tuple[float, float]:
    """The sums over positions as their definitions say, in float64, all at once."""

    def probabilities(logits: np.ndarray) -> np.ndarray:
        powers = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    p, q = probabilities(senior), probabilities(junior)
    cross_entropy = -np.log(q[np.arange(len(targets)), targets]).sum()
    shared = min(p.shape[1], q.shape[1])
    return float(cross_entropy), float(np.minimum(p[:, :shared], q[:, :shared]).sum())


def model(seed: int, width: int, vocabulary: int, tokens: int, spread: float = 1.0):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(tokens, width, generator=generator)
    head = spread * torch.randn(vocabulary, width, generator=generator)
    return states, (lambda part: part @ head.T)


@pytest.mark.parametrize("chunk", [1, 7, 50, 1000])
def test_streamed_scores_are_the_direct_ones(chunk: int):
    senior_states, senior_head = model(0, 8, 300, 50)
    junior_states, junior_head = model(1, 5, 300, 50, spread=3.0)
    targets = np.random.default_rng(0).integers(0, 300, 50).tolist()
    score = score_response(senior_states, senior_head, junior_states, junior_head, targets, chunk)
    expected = direct(
        senior_head(senior_states).numpy(), junior_head(junior_states).numpy(), targets
    )
    assert score.tokens == 50
    assert score.cross_entropy / 50 == pytest.approx(expected[0] / 50, abs=1e-5)
    assert score.overlap / 50 == pytest.approx(expected[1] / 50, abs=1e-5)


def test_each_position_is_exact_also_with_large_logits_and_half_precision():
    generator = torch.Generator().manual_seed(0)
    for dtype, scale in ((torch.float32, 100.0), (torch.bfloat16, 30.0)):
        senior = (scale * torch.randn(20, 2000, generator=generator)).to(dtype)
        junior = (senior.float() + torch.randn(20, 2000, generator=generator)).to(dtype)
        targets = torch.randint(0, 2000, (20,), generator=generator)
        surprise, overlap = chunk_scores(senior, junior, targets)
        for i in range(20):
            expected = direct(
                senior[i : i + 1].float().numpy(),
                junior[i : i + 1].float().numpy(),
                [int(targets[i])],
            )
            assert float(surprise[i]) == pytest.approx(expected[0], abs=1e-9)
            assert float(overlap[i]) == pytest.approx(expected[1], abs=1e-9)


def test_padded_vocabulary_overlaps_with_nothing():
    p, q = torch.zeros(1, 4), torch.zeros(1, 2)  # 1/4 each, and 1/2 each
    surprise, overlap = chunk_scores(p, q, torch.tensor([1]))
    assert float(overlap[0]) == pytest.approx(0.5)
    assert float(surprise[0]) == pytest.approx(np.log(2))


def test_empty_response_scores_nothing():
    states, head = model(0, 8, 100, 0)
    score = score_response(states, head, states, head, [], 7)
    assert (score.tokens, score.cross_entropy, score.overlap) == (0, 0.0, 0.0)


def test_not_a_number_is_refused():
    states, head = model(0, 8, 100, 3)
    with refused("TP837"):
        score_response(states, head, states * float("nan"), head, [0, 1, 2], 7)


def test_chunks_of_a_large_vocabulary_stay_within_their_memory():
    assert chunk_length(151_936) * 151_936 * 8 * 5 <= 256 * 2**20
    assert chunk_length(10**9) == 1
