"""TRL's RLOO trainer in tandem: its loss and KL term are those of the senior's tokens alone."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused
from started import started

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("trl.scripts", reason="TRL is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from shared_rollouts import PIECES, tiny_model  # noqa: E402
from trl import RLOOConfig, RLOOTrainer  # noqa: E402
from trl_trainer import word_tokenizer  # noqa: E402

from tandem_plugin import TandemConfig  # noqa: E402
from tandem_trl.rloo import SENIOR, TandemRLOOTrainer  # noqa: E402
from tandem_trl.start import RLOOSettings  # noqa: E402


class ScriptedRollouts:
    """In place of tandem's rollouts: masks with holes, of responses that TRL generates itself."""

    has_begun = True

    def __init__(self) -> None:
        self.config = TandemConfig()
        self.given: dict[tuple[int, ...], list[int]] = {}
        self._noise = np.random.default_rng(4)

    def begin_batch(self, prompt_ids: Any) -> Any:
        return prompt_ids

    def check(self, kind: Any, args: Any, model: Any, trainer: Any) -> None:
        """There is no engine."""

    def finish_batch(self, responses: Any) -> list[Any]:
        masks = [self._noise.random(len(one.response_ids)) < 0.5 for one in responses]
        for response, mask in zip(responses, masks, strict=True):
            self.given[tuple(response.response_ids)] = mask.astype(int).tolist()
        return [SimpleNamespace(mask=mask) for mask in masks]


@pytest.fixture
def trainer(tmp_path: Path) -> Any:
    from datasets import Dataset

    prompts = [" ".join(PIECES[3 + i : 6 + i]) for i in range(8)]
    config = RLOOConfig(
        output_dir=str(tmp_path),
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        num_generations=4,
        per_device_train_batch_size=8,
        max_completion_length=12,
        max_steps=3,
        num_iterations=2,
        beta=0.1,
        learning_rate=1e-2,
        gradient_checkpointing=False,
    )
    tiny_model().float().save_pretrained(tmp_path / "model")
    return TandemRLOOTrainer(
        model=str(tmp_path / "model"),  # which is also the reference
        reward_funcs=lambda completions, **_: [len(one) % 5 / 5 for one in completions],
        args=config,
        train_dataset=Dataset.from_list([{"prompt": one} for one in prompts]),
        processing_class=word_tokenizer(),
        rollout_func=ScriptedRollouts(),
    )


def test_loss_is_a_loops_over_the_seniors_tokens(trainer: Any) -> None:
    """In each of three updates, two of which share a batch, with the KL term in the reward."""
    inner, compared = trainer._compute_loss, []

    def compute(model: Any, inputs: Any) -> Any:
        loss = inner(model, inputs)
        own, share = by_loop(trainer, model, inputs)
        parameters = [one for one in model.parameters() if one.requires_grad]
        found, expected = (
            torch.autograd.grad(one, parameters, retain_graph=True) for one in (loss, own)
        )
        assert loss.item() == pytest.approx(own.item(), abs=1e-5)
        for one, two in zip(found, expected, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5)
        compared.append((share, max(float(one.abs().max()) for one in found)))
        return loss

    trainer._compute_loss = compute
    trainer.train()
    assert len(compared) == 3
    assert all(0.2 < share < 0.8 and size > 1e-3 for share, size in compared)


def by_loop(trainer: Any, model: Any, inputs: Any) -> tuple[Any, float]:
    """The loss of a batch, one token after another, and the share of tokens that it is of."""
    names = ("prompt_ids", "completion_ids"), ("prompt_mask", "completion_mask")
    ids, attention = (torch.cat([inputs[name] for name in pair], 1) for pair in names)
    length = inputs["completion_ids"].shape[1]
    logits = model(input_ids=ids, attention_mask=attention).logits[:, -length - 1 : -1]
    log_probs = torch.log_softmax(logits / trainer.temperature, -1)
    losses, senior, written = [], 0, 0
    for i, row in enumerate(inputs["completion_ids"].tolist()):
        count = int(inputs["completion_mask"][i].sum())
        mask = trainer._rollouts.given[tuple(row[:count])]
        assert inputs[SENIOR][i, :count].tolist() == mask
        tokens = [t for t in range(count) if mask[t]]
        senior, written = senior + len(tokens), written + count
        total = sum((log_probs[i, t, row[t]] for t in tokens), torch.zeros(()))
        ratio, advantage = (total - inputs["old_logps"][i]).exp(), inputs["advantages"][i]
        clipped = ratio.clamp(1 - trainer.epsilon_low, 1 + trainer.epsilon_high)
        losses.append(-torch.min(ratio * advantage, clipped * advantage))
    return torch.stack(losses).mean(), senior / written


HOOKS = {
    "_generate_single_turn": ["self", "prompt_ids", "images", "multimodal_fields"],
    "_generate_and_score_completions": ["self", "inputs"],
    "_get_per_token_logps_and_entropies": ["self", "model", "input_ids", "attention_mask"],
    "compute_loss": ["self", "model", "inputs", "return_outputs", "num_items_in_batch"],
    "_compute_loss": ["self", "model", "inputs"],
}


@pytest.mark.hooks
@pytest.mark.parametrize(("name", "parameters"), HOOKS.items())
def test_hook_is_where_the_subclass_expects_it(name: str, parameters: list[str]) -> None:
    found = list(inspect.signature(getattr(RLOOTrainer, name)).parameters)
    assert found[: len(parameters)] == parameters


@pytest.mark.hooks
def test_trl_only_sums_log_probabilities_and_knows_no_mask_of_tools() -> None:
    source = inspect.getsource(inspect.getmodule(RLOOTrainer))
    for text in (
        "old_logps = (old_per_token_logps * completion_mask).sum(1)",
        "kl = (per_token_kl * completion_mask).sum(-1)",
        "logps = (per_token_logps * completion_mask).sum(1)",
    ):
        assert text in source
    assert source.count("_get_per_token_logps_and_entropies(") == 5  # its definition and four calls
    assert SENIOR not in source


@pytest.mark.parametrize(
    ("settings", "arguments", "code"),
    [
        ({}, {"use_vllm": False}, "trl-engine-not-vllm"),
        ({"lambda_jun": 0.1}, {}, "trl-imitation-unsupported"),
        ({"images": True}, {}, "trl-images-untested"),
        ({}, {"loss": RLOOTrainer.compute_loss}, "trainer-setting-untested"),
    ],
)
def test_setting_that_does_not_go_with_tandem_is_rejected(
    settings: dict[str, Any], arguments: dict[str, Any], code: str
) -> None:
    args = SimpleNamespace(**{"use_vllm": True, **arguments})
    loss = {"compute_loss": arguments["loss"]} if "loss" in arguments else {}
    trainer = type("Own", (TandemRLOOTrainer,), loss)
    with refused(code):
        started(
            RLOOSettings.of(args, {}, None, trainer),
            TandemConfig.from_mapping({"schedule": "word", **settings}),
        )
