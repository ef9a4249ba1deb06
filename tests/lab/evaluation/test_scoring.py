from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from refused import refused
from scipy import special, stats

torch = pytest.importorskip("torch")

from tandem_plugin.lab.evaluation.inputs import Checkpoint  # noqa: E402
from tandem_plugin.lab.evaluation.legibility import SCORES  # noqa: E402
from tandem_plugin.lab.evaluation.scoring import (  # noqa: E402
    HFModel,
    PositionScores,
    chunk_length,
    chunk_scores,
    score_response,
)


def direct(senior: np.ndarray, junior: np.ndarray, targets: list[int]) -> list[float]:
    """The sums over positions as their definitions say, in float64, all at once: the junior's
    cross-entropy, the overlap, the senior's entropy and KL(senior || junior)."""

    def probabilities(logits: np.ndarray) -> np.ndarray:
        powers = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    p, q = probabilities(senior), probabilities(junior)
    cross_entropy = -np.log(q[np.arange(len(targets)), targets]).sum()
    shared = min(p.shape[1], q.shape[1])
    overlap = np.minimum(p[:, :shared], q[:, :shared]).sum()
    entropy = stats.entropy(p, axis=1).sum()
    return [float(one) for one in (cross_entropy, overlap, entropy, kl(p, q))]


def kl(p: np.ndarray, q: np.ndarray) -> float:
    return float(special.rel_entr(p, q).sum())  # vocabularies of one size


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
    found = (score.cross_entropy, score.overlap, score.entropy, score.kl)
    assert found == pytest.approx(expected, abs=50 * 1e-5)


def test_each_position_is_exact_also_with_large_logits_and_half_precision():
    generator = torch.Generator().manual_seed(0)
    for dtype, scale in ((torch.float32, 100.0), (torch.bfloat16, 30.0)):
        senior = (scale * torch.randn(20, 2000, generator=generator)).to(dtype)
        junior = (senior.float() + torch.randn(20, 2000, generator=generator)).to(dtype)
        targets = torch.randint(0, 2000, (20,), generator=generator)
        scores = torch.stack(chunk_scores(senior, junior, targets), dim=1)
        for i in range(20):
            expected = direct(
                senior[i : i + 1].float().numpy(),
                junior[i : i + 1].float().numpy(),
                [int(targets[i])],
            )
            assert scores[i].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_sharper_senior_lowers_cross_entropy_and_entropy_and_raises_kl(temperature: float):
    """A model read by itself at another temperature. The mean cross-entropy over all tokens, each
    weighed by the senior's probability, is entropy plus KL."""
    junior = 2 * torch.randn(1, 500, generator=torch.Generator().manual_seed(0))

    def read(temperature: float) -> tuple[float, float, float]:
        senior = junior / temperature
        every = chunk_scores(senior.expand(500, -1), junior.expand(500, -1), torch.arange(500))
        weights = torch.softmax(senior.double(), dim=-1)[0]
        return float(weights @ every.cross_entropy), float(every.entropy[0]), float(every.kl[0])

    surprise, entropy, divergence = read(temperature)
    assert surprise == pytest.approx(entropy + divergence, abs=1e-9)
    plain = read(1.0)
    assert plain[2] == pytest.approx(0, abs=1e-12)
    assert (divergence > 0.01) is (temperature != 1)
    assert np.sign(surprise - plain[0]) == np.sign(entropy - plain[1]) == np.sign(temperature - 1)


def test_example_of_the_evaluation_page_is_so():
    """Five tokens of 1/2, 1/4, 1/8, 1/16 and 1/16, read at temperature 0.5 by the model itself."""
    junior = torch.log(torch.tensor([8, 4, 2, 1, 1]) / 16)[None].double()
    for temperature, expected in ((1.0, (1.30, 0.0, 1.0)), (0.5, (0.93, 0.16, 0.76))):
        senior = junior / temperature
        every = chunk_scores(senior.expand(5, -1), junior.expand(5, -1), torch.arange(5))
        surprise = float(torch.softmax(senior, dim=-1)[0] @ every.cross_entropy)
        found = (surprise, float(every.kl[0]), float(every.overlap[0]))
        assert found == pytest.approx(expected, abs=0.005)


def test_token_that_the_senior_never_writes_adds_no_divergence():
    senior, junior = torch.zeros(1, 3), torch.zeros(1, 3)
    senior[0, 2] = junior[0, 2] = -torch.inf
    scores = chunk_scores(senior, junior, torch.tensor([0]))
    assert float(scores.kl[0]) == 0
    assert float(scores.entropy[0]) == pytest.approx(np.log(2))


def test_padded_vocabulary_overlaps_with_nothing():
    p, q = torch.zeros(1, 4), torch.zeros(1, 2)  # 1/4 each, and 1/2 each
    scores = chunk_scores(p, q, torch.tensor([1]))
    assert float(scores.overlap[0]) == pytest.approx(0.5)
    assert float(scores.cross_entropy[0]) == pytest.approx(np.log(2))
    assert float(scores.entropy[0]) == pytest.approx(np.log(4))
    assert float(scores.kl[0]) == pytest.approx(0.5 * np.log(0.5))  # of the tokens that both have


def test_files_name_the_scores_of_a_position():
    assert PositionScores._fields == SCORES


def test_empty_response_scores_nothing():
    states, head = model(0, 8, 100, 0)
    score = score_response(states, head, states, head, [], 7)
    assert astuple(score) == (0, 0.0, 0.0, 0.0, 0.0)


def test_not_a_number_is_refused():
    states, head = model(0, 8, 100, 3)
    with refused("scoring-logits-not-finite"):
        score_response(states, head, states * float("nan"), head, [0, 1, 2], 7)


def test_chunks_of_a_large_vocabulary_stay_within_their_memory():
    assert chunk_length(151_936) * 151_936 * 8 * 8 <= 256 * 2**20
    assert chunk_length(10**9) == 1


def test_a_folder_without_a_model_cannot_score(tmp_path: Path):
    pytest.importorskip("transformers")
    with refused("scoring-model-not-loaded", checkpoint="senior", path=str(tmp_path)):
        HFModel(Checkpoint("senior", str(tmp_path), ""), device="cpu")


def scoring_model(scale: float) -> HFModel:
    """A model of one matrix, whose logits are its head's output times ``scale``."""
    found = object.__new__(HFModel)
    found.checkpoint, found.device = Checkpoint("senior", "/senior", ""), torch.device("cpu")
    found.vocabulary, found.longest = 6, 3
    found._head = torch.nn.Linear(4, 6, bias=False)
    embedding = torch.nn.Embedding(6, 4)
    found._body = lambda input_ids, **_: SimpleNamespace(last_hidden_state=embedding(input_ids))
    found._model = lambda input_ids, **_: SimpleNamespace(
        logits=scale * found._head(embedding(input_ids))
    )
    return found


def test_more_positions_than_a_model_has_are_refused():
    states = scoring_model(1.0).states([1, 2], [3, 4])
    assert states.shape == (2, 4)
    with refused("scoring-sequence-too-long", ids=4, longest=3, checkpoint="senior"):
        scoring_model(1.0).states([1, 2, 3], [4, 5])


def test_logits_that_are_not_the_heads_output_are_refused():
    scoring_model(1.0)._check_head()
    with refused("scoring-logits-transformed", checkpoint="senior"):
        scoring_model(0.5)._check_head()


def test_checkpoint_that_lacks_a_weight_cannot_score(tmp_path: Path):
    """Transformers would fill it with random numbers, as it does with an unread quantisation's."""
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

    shape = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    layers = {"num_hidden_layers": 1, "num_key_value_heads": 1, "vocab_size": 24}
    config = transformers.LlamaConfig(**shape, **layers, tie_word_embeddings=False)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    HFModel(Checkpoint("whole", str(tmp_path), ""), device="cpu")
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.0.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with refused("scoring-model-not-loaded", checkpoint="less") as caught:
        HFModel(Checkpoint("less", str(tmp_path), ""), device="cpu")
    assert "lack model.layers.0.mlp.up_proj.weight" in str(caught.value)
