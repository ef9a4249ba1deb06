"""The registered comparison's stack of models against independent computations, its task, and what
it makes of its rows."""

from __future__ import annotations

import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path += [str(EXAMPLES), str(EXAMPLES / "study")]

torch = pytest.importorskip("torch", reason="the comparison trains with PyTorch")
pytest.importorskip("transformers", reason="its stack is compared with Hugging Face's models")
pytest.importorskip("scipy.stats", reason="its tests are SciPy's")

import gpu  # noqa: E402
import stacked  # noqa: E402
from chains import QUICK, WHOLE, Chains, draw_chains, split_chains  # noqa: E402
from light.grpo import GRPO, HALF, TANDEM  # noqa: E402
from light.page import MEASURES  # noqa: E402
from light.responses import Team  # noqa: E402
from light.runs import TAUGHT  # noqa: E402
from light.worlds import SECOND  # noqa: E402
from stack import AdamW, Reader, Stack  # noqa: E402
from stacked import Noise, Run, check_replay, teach, train, write  # noqa: E402

from tandem_plugin.grading import grade  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """What is this small is slower on several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpu.quick_model(tmp_path_factory.mktemp("gpu") / "model")


@pytest.fixture(scope="module")
def task(folder: Path) -> Chains:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = gpu.CHAT
    return Chains(tokenizer)


@pytest.fixture(scope="module")
def references(folder: Path) -> list[Any]:
    """Two different models of one shape, with distributions that are far from flat."""
    from transformers import AutoModelForCausalLM

    made = []
    for seed in (0, 1):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        torch.manual_seed(seed)
        for weight in model.parameters():
            torch.nn.init.normal_(weight, 1.0 if weight.dim() == 1 else 0.0, 0.2)
        made.append(model.eval())
    return made


@pytest.fixture(scope="module")
def both(references: list[Any]) -> Stack:
    one, two = (Stack.of(model, CPU) for model in references)
    joined = {name: torch.cat((one.weights[name], two.weights[name])) for name in one.weights}
    return Stack(one.sizes, joined)


@torch.no_grad()
def test_stack_is_hugging_faces_models_side_by_side(references: list[Any], both: Stack):
    ids = torch.randint(0, both.vocabulary, (2, 3, 20))
    found = both.response_logits(ids, 5)
    for place, model in enumerate(references):
        expected = model(ids[place]).logits[:, 4:-1]
        assert torch.allclose(found[place], expected, atol=1e-4)


@torch.no_grad()
def test_reader_says_of_each_token_what_the_models_do(references: list[Any], both: Stack):
    """Seniors 0 and 1; the junior, beside senior 1 alone, is model 0."""
    ids = torch.randint(0, both.vocabulary, (2, 3, 12))
    reader = Reader(both, both.pick([0]), [1], 3, 12)
    read = [reader.prompts(ids[..., :8]), *(reader.token(ids[..., at], at) for at in range(8, 12))]
    for place, (seniors, juniors) in enumerate(read):
        at = 7 + place
        for senior, model in zip(seniors, references, strict=True):
            row = list(references).index(model)
            assert torch.allclose(senior, model(ids[row]).logits[:, at], atol=1e-4)
        assert torch.allclose(juniors[0], references[0](ids[1]).logits[:, at], atol=1e-4)


def test_optimizer_is_torchs_with_a_norm_of_each_models_own(both: Stack):
    stack = both.pick([0, 1])
    rates = [1e-3, 3e-3]
    alone = [
        {name: weight[place].clone().requires_grad_() for name, weight in both.weights.items()}
        for place in range(2)
    ]
    optimizer = AdamW(stack, torch.tensor(rates))
    separate = [
        torch.optim.AdamW(one.values(), lr=rate, weight_decay=0.01)
        for one, rate in zip(alone, rates, strict=True)
    ]
    for _ in range(3):
        gradients = {name: torch.randn(one.shape) for name, one in stack.weights.items()}
        for name, weight in stack.weights.items():
            weight.grad = gradients[name].clone()
        optimizer.step()
        for place, (one, other) in enumerate(zip(alone, separate, strict=True)):
            for name, weight in one.items():
                weight.grad = gradients[name][place].clone()
            torch.nn.utils.clip_grad_norm_(one.values(), 1.0)
            other.step()
    for name, weight in stack.weights.items():
        for place in range(2):
            assert torch.allclose(weight[place], alone[place][name], atol=1e-6), name


@torch.no_grad()
def test_each_token_is_its_authors(task: Chains, references: list[Any], both: Stack):
    """At a temperature near 0, what the author would write, by Hugging Face's models."""
    prompts = task.prompts(draw_chains(6, 3)).expand(2, -1, -1)
    rule, seeds = task.rule("word"), list(range(12))
    reader = Reader(both, both.pick([1]), [0], 6, prompts.shape[2] + task.longest)
    team = Team(rule, seeds, task.longest, CPU)
    noise = Noise([1, 1], CPU, "test")
    cowritten = torch.tensor([True, False])
    made = write(reader, prompts, task, team, cowritten, noise, 1e-4)
    check_replay(rule, made, seeds, [0, 1])
    whole, start = torch.cat((prompts, made.ids), 2), prompts.shape[2]
    of = [model(whole[0]).logits[:, start - 1 : -1].argmax(-1) for model in references]
    expected = torch.where(made.senior[0], of[0], of[1])
    kept = made.written[0]
    assert (made.ids[0][kept] == expected[kept]).float().mean() > 0.99
    assert 0.2 < made.senior[0][kept].float().mean() < 0.8
    # Model 1 has no junior: it writes even where the draws name one.
    alone = references[1](whole[1]).logits[:, start - 1 : -1].argmax(-1)
    kept = made.written[1]
    assert (made.ids[1][kept] == alone[kept]).float().mean() > 0.99
    made.senior[0, 0, 0] ^= True
    with pytest.raises(RuntimeError, match="differs from its replay"):
        check_replay(rule, made, seeds, [0])


def test_training_in_a_stack_is_training_alone(
    task: Chains, both: Stack, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stacked, "reward", lambda text, gold: float(sum(map(ord, text)) % 2))
    size = replace(QUICK, training=replace(QUICK.training, prompts=3, group=4))
    starts = both.pick([0])
    runs = [Run(1, method) for method in (GRPO, HALF, TANDEM, SECOND)]

    def trained(chosen: list[Run]) -> tuple[Stack, list[list[int]]]:
        steps = list(train(task, starts, [1], chosen, [1e-3] * len(chosen), size))
        return steps[-1].seniors, [step.trained for step in steps]

    together, tokens = trained(runs)
    for place, run in enumerate(runs):
        alone, own = trained([run])
        assert [counts[place] for counts in tokens] == [counts[0] for counts in own]
        for name, weight in alone.weights.items():
            moved = (weight[0] - starts.weights[name][0]).abs().max()
            assert moved > 1e-4
            assert torch.allclose(together.weights[name][place], weight[0], atol=2e-5), name
    assert not torch.allclose(together.weights["norm"][0], together.weights["norm"][3], atol=1e-6)
    first = tokens[0]
    assert 0.3 < first[1] / first[0] < 0.7  # the half's tokens
    assert not torch.allclose(together.weights["norm"][1], together.weights["norm"][2], atol=1e-6)


def test_teaching_lowers_the_loss_of_what_is_taught(task: Chains, both: Stack):
    size = replace(QUICK, taught=25)
    seeds = [1, 2]

    @torch.no_grad()
    def loss(stack: Stack) -> list[float]:
        shown = split_chains(size, 3).teaching[:16]
        rng = random.Random(5)
        found = []
        for place in range(stack.models):
            rows = [task.answer_ids(one.worked(rng)) for one in shown]
            total = 0.0
            for prompt, row in zip(task.prompts(shown), rows, strict=True):
                ids = torch.cat((prompt, torch.tensor(row)))[None, None]
                logits = stack.pick([place]).response_logits(ids, len(prompt))
                total += float(torch.nn.functional.cross_entropy(logits[0, 0], torch.tensor(row)))
            found.append(total / len(rows))
        return found

    before, after = loss(both.pick([0, 0])), loss(teach(task, both, seeds, size))
    assert all(new < old - 0.05 for old, new in zip(before, after, strict=True))
    assert after[0] != after[1]


def test_worked_chains_end_in_their_answer_by_true_steps():
    rng = random.Random(1)
    for chain in draw_chains(200, 2):
        answer = eval(chain.text)
        assert chain.answer == str(answer)
        lines = chain.worked(rng).splitlines()
        assert len(lines) == 4
        assert int(re.findall(r"-?\d+", lines[2])[-1]) == answer
        assert grade("\n".join(lines), chain.answer).reward == 1


def test_problems_of_one_use_are_in_no_other():
    first, second = split_chains(WHOLE, 1), split_chains(WHOLE, 2)
    counts = [len(part) for part in (first.test, first.validation, first.teaching, first.training)]
    assert counts == [512, 256, 3200, 8192]
    every = {one.text for part in (first.test, first.validation, first.teaching) for one in part}
    every |= {one.text for one in first.training}
    assert len(every) == sum(counts)
    assert (first.test, first.validation) == (second.test, second.validation)
    assert first.teaching != second.teaching


def test_noise_of_a_seed_is_shared_by_its_models_and_does_not_depend_on_others():
    logits = torch.zeros(3, 4, 50)
    shared = Noise([1, 1, 2], CPU, "a").token(logits)
    assert torch.equal(shared[0], shared[1])
    assert not torch.equal(shared[0], shared[2])
    assert torch.equal(Noise([2], CPU, "a").token(logits[:1])[0], shared[2])


def row(seed: int, method: str, step: float, kl: float) -> dict[str, Any]:
    names = (*MEASURES, "validation", "continued")
    last = dict.fromkeys(names, 0.8) | {"step": step, "kl": kl, "own_validation": 0.8}
    taught = {**dict.fromkeys(last, 0.5), "step_number": 0, "trained_tokens": 0}
    points = [taught] if method == TAUGHT else [{**last, "step_number": 60, "trained_tokens": 9}]
    return {"model": seed, "method": method, "seconds": 1, "points": points}


def rows(seeds: int) -> list[dict[str, Any]]:
    return [
        row(seed, method, 0.6 + (0.01 + 0.001 * seed if method == TANDEM.name else 0), 0.1)
        for seed in range(1, seeds + 1)
        for method in (TAUGHT, GRPO.name, HALF.name, TANDEM.name, SECOND.name)
    ]


def test_four_seeds_say_how_many_it_takes_and_claim_nothing():
    text = gpu.page(rows(4))
    assert "No claim is made." in text
    assert "standard deviation of 0.13 points: 8 seeds." in text
    assert "+0.0" not in text
    assert "16 seeds" in gpu.seeds_needed(np.array([-0.05, 0.05, 0.03, -0.02]))
    assert gpu.seeds_needed(np.array([0.01, 0.02])) == gpu.seeds_needed(np.array([-0.02, -0.01]))


def test_eight_seeds_are_tested_one_sided_and_corrected():
    text = gpu.page(rows(8))
    line, null = (one for one in text.splitlines() if one.startswith("| step | "))
    assert null == "| step | +0.0000 ± 0.0000 |"  # GRPO's two trainings are equal here
    assert sum(one.startswith("| continued | ") for one in text.splitlines()) == 2
    assert line.startswith("| step | +0.0145 ± 0.0009 | ")
    p, corrected = (float(cell) for cell in line.strip("| ").split(" | ")[2:])
    assert corrected == pytest.approx(2 * p, rel=0.05)
    assert p < 1e-5
