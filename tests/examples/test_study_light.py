"""The study's light loop against independent computations: its model, its teams and its losses."""

from __future__ import annotations

import copy
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples" / "study"))

torch = pytest.importorskip("torch", reason="the light loop is PyTorch")
pytest.importorskip("transformers", reason="the light loop is held to Hugging Face's models")

from light import grpo  # noqa: E402
from light.model import LanguageModel, Shape, load_model, save_model  # noqa: E402
from light.responses import Evaluation, Responses, generate  # noqa: E402
from light.task import LONGEST, Task, draw_problems  # noqa: E402

TEMPERATURE = 0.6


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """As in the study: what is this small is slower on several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def task() -> Task:
    return Task()


@pytest.fixture(scope="module")
def models(task: Task) -> list[LanguageModel]:
    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        made.append(LanguageModel(Shape(task.size)).eval())
    return made


@pytest.fixture(scope="module")
def reference(models: list[LanguageModel]) -> list[Any]:
    """Hugging Face's models of the same weights."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    made = []
    for model in models:
        sizes = asdict(model.shape)
        theta = sizes.pop("rope_theta")
        config = Qwen3Config(
            **sizes,
            num_key_value_heads=model.shape.num_attention_heads,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            tie_word_embeddings=True,
        )
        theirs = Qwen3ForCausalLM(config).eval()
        embedding = model.model.embed_tokens.weight
        theirs.load_state_dict({**model.state_dict(), "lm_head.weight": embedding})
        made.append(theirs)
    return made


def answers(task: Task, models: list[LanguageModel], schedule: str | None, rows: int) -> Responses:
    rule = None if schedule is None else task.rule(schedule)
    return generate(
        models[0],
        models[1],
        task.prompts(draw_problems(rows, 1)),
        LONGEST,
        task.end,
        torch.Generator().manual_seed(2),
        rule,
        list(range(rows)),
        TEMPERATURE,
    )


@torch.inference_mode()
def test_model_is_hugging_faces(task: Task, models: list[Any], reference: list[Any]):
    ids = torch.randint(0, task.size, (3, 20))
    for model, theirs in zip(models, reference, strict=True):
        expected = theirs(ids).logits
        assert torch.allclose(model(ids), expected, atol=1e-5)
        cache = model.new_cache(3, 20)
        parts = [
            model(ids[:, :12], cache),
            *(model(ids[:, i : i + 1], cache) for i in range(12, 20)),
        ]
        assert torch.allclose(torch.cat(parts, dim=1), expected, atol=1e-5)


def test_saved_model_is_loaded_as_it_was(models: list[LanguageModel], tmp_path: Path):
    save_model(models[0], tmp_path / "models" / "start-1.pt")
    loaded = load_model(tmp_path / "models" / "start-1.pt")
    assert loaded.shape == models[0].shape
    for name, weights in models[0].state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weights)


@pytest.mark.parametrize("schedule", ["word", "step", "step-bernoulli", "token"])
def test_team_is_written_by_whom_replay_says(task: Task, models: list[Any], schedule: str):
    responses = answers(task, models, schedule, 64)
    rule = task.rule(schedule)
    for row, ids in enumerate(responses.token_ids()):
        expected = rule.replay(ids, row).senior
        assert responses.senior[row, : len(ids)].tolist() == list(expected)
    assert 0 < responses.senior[responses.written].float().mean() < 1


@torch.inference_mode()
def test_log_probability_of_each_token_is_its_authors(
    task: Task, models: list[Any], reference: list[Any]
):
    responses = answers(task, models, "word", 32)
    start = responses.prompt_length
    both = []
    for theirs in reference:
        logits = theirs(responses.ids[:, :-1]).logits[:, start - 1 :]
        logits = (logits / TEMPERATURE).log_softmax(-1)
        both.append(logits.gather(-1, responses.ids[:, start:, None]).squeeze(-1))
    expected = torch.where(responses.senior, *both)
    written = responses.written
    assert torch.allclose(responses.log_probs[written], expected[written], atol=1e-4)
    assert (responses.log_probs[~written] == 0).all()


@torch.inference_mode()
def test_tokens_are_drawn_from_their_authors_distribution(task: Task, models: list[Any]):
    from scipy import stats

    rows, problem = 6_000, draw_problems(1, 1)
    rule = task.rule("step")  # the senior writes the first step
    prompts = task.prompts(problem).expand(rows, -1)
    noise = torch.Generator().manual_seed(5)
    seeds = list(range(rows))
    responses = generate(*models, prompts, 1, task.end, noise, rule, seeds, TEMPERATURE)
    first = responses.ids[:, responses.prompt_length]
    expected = (models[0](prompts[:1])[0, -1] / TEMPERATURE).softmax(-1).double().numpy() * rows
    found = np.bincount(first.numpy(), minlength=task.size)
    # The junior's distribution differs by far: with 6,000 draws it would be found by certainty.
    assert stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue > 1e-3
    other = (models[1](prompts[:1])[0, -1] / TEMPERATURE).softmax(-1).double().numpy() * rows
    assert stats.chisquare(found, other * found.sum() / other.sum()).pvalue < 1e-10


def test_advantages_and_losses_are_verls():
    core_algos = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is the reference")
    torch.manual_seed(3)
    rewards = torch.rand(4, 8).round()
    mask = torch.ones(32, 5)
    token_rewards = torch.zeros(32, 5)
    token_rewards[:, -1] = rewards.flatten()
    groups = np.repeat(np.arange(4), 8)
    expected, _ = core_algos.compute_grpo_outcome_advantage(token_rewards, mask, groups)
    ours = grpo.advantages(rewards).flatten()
    assert torch.allclose(ours, expected[:, 0], atol=1e-6)
    now, old, anchor = (-3 * torch.rand(32, 5) for _ in range(3))
    theirs = core_algos.kl_penalty(now, anchor, "low_var_kl")
    assert torch.allclose(grpo.low_variance_kl(now, anchor), theirs, atol=1e-6)
    ratio = (now - old).exp().numpy()
    weights = ours[:, None].numpy()
    loop = [
        [
            -min(r * w, min(max(r, 0.8), 1.2) * w)
            for r, w in zip(row, np.repeat(weight, 5), strict=True)
        ]
        for row, weight in zip(ratio, weights, strict=True)
    ]
    found = grpo.policy_loss(now, old, ours[:, None], 0.2)
    assert np.allclose(found.numpy(), np.array(loop), atol=1e-5)


def test_update_moves_the_senior_by_its_own_tokens_alone(task: Task, models: list[Any]):
    """The gradient of a team's mini-batch is the one of a loss written out token by token."""
    responses = answers(task, models, "word", 16)
    weights = torch.linspace(-1, 1, 16)
    trained = responses.written & responses.senior
    senior = copy.deepcopy(models[0]).train()
    optimizer = torch.optim.SGD(senior.parameters(), lr=0.0)
    sizes = grpo.Optimization(steps=1, prompts=2, temperature=TEMPERATURE)
    method = grpo.Method("tandem", "word")
    chosen = torch.arange(16)
    old = torch.where(responses.senior, responses.log_probs, torch.zeros(()))
    grpo._update(senior, optimizer, responses, chosen, trained, weights, None, method, sizes)
    other = copy.deepcopy(models[0])
    losses = []
    for row, ids in enumerate(responses.token_ids()):
        logits = other(responses.ids[row : row + 1])[0] / TEMPERATURE
        log_probs = logits.log_softmax(-1)
        for place, token in enumerate(ids):
            if trained[row, place]:
                now = log_probs[responses.prompt_length + place - 1, token]
                losses.append(-weights[row] * (now - old[row, place]).exp())
    torch.stack(losses).mean().backward()
    torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
    for (name, ours), theirs in zip(senior.named_parameters(), other.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-5), name


def test_half_of_grpos_tokens_are_those_that_word_marks(task: Task, models: list[Any]):
    """The senior writes them all, and the draws of a team choose what is trained."""
    rows = 32
    prompts, rule = task.prompts(draw_problems(rows, 1)), task.rule("word")
    alone, marked = (
        generate(models[0], None, prompts, LONGEST, task.end, noise, given, list(range(rows)))
        for given, noise in ((None, seeded(2)), (rule, seeded(2)))
    )
    assert alone.token_ids() == marked.token_ids()
    assert torch.equal(alone.log_probs, marked.log_probs)
    for row, ids in enumerate(marked.token_ids()):
        assert marked.senior[row, : len(ids)].tolist() == list(rule.replay(ids, row).senior)
    assert 0.3 < marked.senior[marked.written].float().mean() < 0.7


def seeded(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


def test_record_that_is_not_its_replay_stops_the_training(task: Task, models: list[Any]):
    responses = answers(task, models, "word", 8)
    responses.senior[0, 0] ^= True
    with pytest.raises(RuntimeError, match="differs from its replay"):
        grpo._replayed(responses, task.rule("word"), list(range(8)))


def nothing_right(responses: list[list[int]], problems: list[Any]) -> np.ndarray:
    """The grades of models that were taught nothing."""
    return np.zeros(len(problems))


def test_evaluation_is_the_same_for_a_seed_and_counts_what_was_written(
    task: Task, models: list[LanguageModel], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(task, "rewards", nothing_right)
    problems = draw_problems(16, 3)
    first, again = (Evaluation(task, problems, 5).alone(models[0]) for _ in range(2))
    other = Evaluation(task, problems, 6).alone(models[0])
    assert first[0] == again[0]
    assert first[1].token_ids() == again[1].token_ids()
    assert first[1].token_ids() != other[1].token_ids()
    assert first[0]["solo"] == 0
    written = np.bincount(np.concatenate(first[1].token_ids()), minlength=task.size)
    assert first[0]["token_counts"] == written.tolist()


def test_accuracy_is_the_mean_over_problems_and_samples(
    task: Task, models: list[LanguageModel], monkeypatch: pytest.MonkeyPatch
):
    right = np.array([1, 0, 0, 0, 0, 0, 1, 1], dtype=float)
    monkeypatch.setattr(task, "rewards", lambda responses, problems: right)
    found = Evaluation(task, draw_problems(4, 3), 5, samples=2).alone(models[0])[0]
    assert found["solo"] == 3 / 8
