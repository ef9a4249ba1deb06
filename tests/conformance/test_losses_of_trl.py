"""TRL's own losses under masks with holes, against plain loops over the senior's tokens alone."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("trl.scripts", reason="TRL is not installed")

from shared_rollouts import tiny_model  # noqa: E402
from trl_trainer import grpo_trainer  # noqa: E402

from tandem_trl.start import SOUND_LOSSES  # noqa: E402

ROWS, LENGTH, LOW, HIGH, DELTA, BETA, LONGEST = 6, 9, 0.2, 0.28, 1.5, 0.05, 16
SHAPES = {"plain": {}, "kl": {"beta": BETA}, "two-sided": {"delta": DELTA}}


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return grpo_trainer(
        tiny_model(),
        tmp_path_factory.mktemp("trl"),
        epsilon=LOW,
        epsilon_high=HIGH,
        max_completion_length=LONGEST,
    )


def made_batch() -> dict[str, Any]:
    """Rows of several lengths, with holes; one has no token of the senior's, one all of them."""
    noise = torch.Generator().manual_seed(4)
    lengths = torch.tensor([9, 4, 1, 7, 9, 5])
    is_completion = (torch.arange(LENGTH) < lengths[:, None]).long()
    senior = torch.randint(0, 2, (ROWS, LENGTH), generator=noise)
    senior[1], senior[2] = 0, 1

    def near(scale: float) -> Any:
        return scale * torch.randn(ROWS, LENGTH, generator=noise, dtype=torch.float64)

    log_probs = near(0.8) - 2
    ratios = near(0.2).exp() * (is_completion * senior) + (1 - is_completion * senior)
    return {
        "prompt_ids": torch.zeros(ROWS, 2, dtype=torch.long),
        "prompt_mask": torch.ones(ROWS, 2, dtype=torch.long),
        "completion_ids": torch.zeros(ROWS, LENGTH, dtype=torch.long),
        "completion_mask": is_completion,
        "tool_mask": senior,
        "advantages": torch.tensor([0.7, -0.3, 1.1, -1.4, 0.2, -0.6], dtype=torch.float64),
        "num_items_in_batch": (is_completion * senior).sum(),
        "old_per_token_logps": log_probs + near(0.4),
        "ref_per_token_logps": log_probs + near(0.3),
        "importance_sampling_ratio": ratios,
        "log_probs": log_probs,
    }


def loops(batch: dict[str, Any], loss: str, level: str, shape: dict[str, float]) -> Any:
    """The gradient by each log-probability, one token of the senior's after another."""
    log_probs = batch["log_probs"].clone().requires_grad_()
    rows = []
    for i in range(ROWS):
        tokens = [
            j for j in range(LENGTH) if batch["completion_mask"][i, j] and batch["tool_mask"][i, j]
        ]
        log_ratios = {j: log_probs[i, j] - batch["old_per_token_logps"][i, j] for j in tokens}
        if level == "sequence":
            mean = sum(log_ratios.values()) / max(len(tokens), 1)
            log_ratios = dict.fromkeys(tokens, mean)
        rows.append(
            [one_token(batch, log_probs, i, j, r, loss, shape) for j, r in log_ratios.items()]
        )
    every = [value for row in rows for value in row]
    total = {
        "grpo": lambda: sum(sum(row) / len(row) for row in rows if row) / ROWS,
        "bnpo": lambda: sum(every) / len(every),
        "dr_grpo": lambda: sum(every) / (ROWS * LONGEST),
        "luspo": lambda: sum(every) / ROWS,
    }
    total["sapo"], total["dapo"] = total["grpo"], total["bnpo"]
    total["cispo"] = total["vespo"] = total["bnpo"]
    total[loss]().backward()
    return log_probs.grad


def one_token(
    batch: dict[str, Any], log_probs: Any, i: int, j: int, log_ratio: Any, loss: str, shape: Any
) -> Any:
    advantage, ratio, now = batch["advantages"][i], log_ratio.exp(), log_probs[i, j]
    correction = batch["importance_sampling_ratio"][i, j]
    if loss == "cispo":
        value = -ratio.clamp(max=HIGH).detach() * advantage * now * correction
    elif loss == "sapo":
        temperature = 1.0 if advantage > 0 else 1.05
        value = -torch.sigmoid(temperature * (ratio - 1)) * 4 / temperature * advantage * correction
    elif loss == "vespo":
        value = -vespo_weight(batch, log_probs, i) * advantage * now
    else:
        unclipped = ratio.clamp(max=shape["delta"]) if "delta" in shape else ratio
        clipped = ratio.clamp(1 - LOW, 1 + HIGH)
        value = -min(unclipped * advantage, clipped * advantage) * correction
    if "beta" in shape:
        difference = batch["ref_per_token_logps"][i, j] - now
        value = value + BETA * (difference.exp() - difference - 1) * ratio  # bias-corrected
    return value


def vespo_weight(batch: dict[str, Any], log_probs: Any, i: int) -> Any:
    """VESPO's gamma weight of a sequence, of the senior's tokens alone."""
    own = (batch["completion_mask"][i] * batch["tool_mask"][i]).bool()
    log_ratio = (log_probs[i] - batch["old_per_token_logps"][i])[own].sum().detach()
    log_weight = log_ratio + batch["importance_sampling_ratio"][i][own].log().sum()
    k, rate = (2.0, 3.0) if batch["advantages"][i] >= 0 else (3.0, 2.0)
    return (rate + k * log_weight - rate * log_weight.exp()).exp()


def trls(
    trainer: Any, batch: dict[str, Any], loss: str, level: str, shape: dict[str, float]
) -> Any:
    """The gradient of TRL's loss by what it takes for the model's log-probabilities."""
    log_probs = batch["log_probs"].clone().requires_grad_()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (log_probs, log_probs * 0, None)
    trainer.loss_type, trainer.importance_sampling_level = loss, level
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    trainer.beta, trainer.args.delta = shape.get("beta", 0.0), shape.get("delta")
    inputs = {name: value for name, value in batch.items() if name != "log_probs"}
    trainer.compute_loss(trainer.model.train(), inputs).backward()
    return log_probs.grad


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("loss", SOUND_LOSSES)
def test_loss_is_that_of_the_seniors_tokens(
    trainer: Any, loss: str, level: str, shape: str
) -> None:
    batch = made_batch()
    found = trls(trainer, batch, loss, level, SHAPES[shape])
    expected = loops(batch, loss, level, SHAPES[shape])
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    holes = (batch["completion_mask"] * batch["tool_mask"]) == 0
    assert not found[holes].any()


def test_a_mask_without_holes_gives_another_gradient(trainer: Any) -> None:
    batch = made_batch()
    whole = {**batch, "tool_mask": torch.ones_like(batch["tool_mask"])}
    given = trls(trainer, batch, "dapo", "token", {})
    assert (given - trls(trainer, whole, "dapo", "token", {})).abs().max() > 1e-3


@pytest.mark.parametrize("beta", [0.0, BETA])
def test_loss_of_gmpo_is_that_of_the_seniors_tokens(trainer: Any, beta: float) -> None:
    """The geometric mean of a row's clipped ratios, and the mean of its KL terms."""
    from trl.experimental.gmpo import GMPOTrainer

    batch = made_batch()
    found = batch["log_probs"].clone().requires_grad_()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (found, found * 0, None)
    trainer.beta = beta
    inputs = {name: value for name, value in batch.items() if name != "log_probs"}
    GMPOTrainer._compute_loss(trainer, trainer.model.train(), inputs).backward()

    own = batch["log_probs"].clone().requires_grad_()
    rows = []
    for i, advantage in enumerate(batch["advantages"]):
        ratios, terms = [], []
        for j in range(LENGTH):
            if batch["completion_mask"][i, j] and batch["tool_mask"][i, j]:
                ratio = own[i, j] - batch["old_per_token_logps"][i, j]
                pick = torch.minimum if advantage > 0 else torch.maximum
                ratios.append(pick(ratio, ratio.clamp(-LOW, HIGH)))
                difference = batch["ref_per_token_logps"][i, j] - own[i, j]
                terms.append(difference.exp() - difference - 1)
        if ratios:
            mean = sum(ratios) / len(ratios)
            rows.append(-mean.exp() * advantage + beta * sum(terms) / len(terms))
    (sum(rows) / ROWS).backward()
    torch.testing.assert_close(found.grad, own.grad, rtol=1e-6, atol=1e-9)
    assert own.grad.abs().max() > 1e-3
