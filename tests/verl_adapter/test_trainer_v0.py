"""The legacy trainer's patches on stand-ins: what they check, measure and dump."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from verl_stand_ins import (
    ADVANTAGES,
    DISTILLING,
    IMITATING,
    IN_TANDEM,
    LESS,
    MASKS,
    OLD,
    PARTNER_KL,
    PLAIN,
    SEEDS,
    TOKENIZER,
    TOKENS,
    Validation,
    complement,
    configuration,
    facts_of,
    legacy_module,
    torch,
)

from tandem_plugin import AuthorshipError, ConfigError, EngineError
from tandem_plugin.training.authorship_wire import FACTS
from tandem_verl import trainer_v0


class TrainerV0(Validation):
    def __init__(self, config: Any, tokenizer: Any) -> None:
        self.config = config
        self.logged: dict[str, Any] = {}

    def _update_actor(self, batch: Any) -> Any:
        metrics = {"actor/loss": 1}
        if batch is not None and "junior_mask" in batch.batch:
            assert batch.batch["junior_mask"].shape == batch.batch["response_mask"].shape
            metrics["actor/junior_imitation_loss"] = batch.batch["junior_mask"].tolist()
            metrics["weight"] = batch.meta_info["tandem_lambda_jun"]
        return SimpleNamespace(meta_info={"metrics": metrics})

    def _log_rollout_data(self, batch: Any, extra: Any, timing: Any, folder: str) -> None:
        self.logged = extra

    def _dump_generations(self, **dump: Any) -> None: ...

    def init_workers(self) -> None: ...


def batch_v0(fingerprint: str) -> Any:
    def column(values: list[Any]) -> Any:
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    return SimpleNamespace(
        batch={
            "responses": torch.tensor([[*TOKENS[0], 0], [*TOKENS[1], 0, 0]]),
            "attention_mask": torch.tensor([[0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0]]),
            "response_mask": torch.tensor([[*MASKS[0], 0], [*MASKS[1], 0, 0]]),
        },
        non_tensor_batch={
            "uid": column(["u", "u"]),
            FACTS: column([facts_of(row, fingerprint) for row in range(2)]),
        },
    )


class V0:
    """The module of the legacy trainer, and a step of it as far as the adapter sees it."""

    def __init__(self, config: Any) -> None:
        self.module = legacy_module(TrainerV0)
        trainer_v0.watch(self.module)
        self.trainer = self.module.RayPPOTrainer(config, TOKENIZER)
        tandem = getattr(self.trainer, "_tandem", None)
        self.batch = None if tandem is None else batch_v0(tandem.rules.fingerprint)

    def step(self) -> Any:
        self.module.extract_reward(self.batch)
        return self.update()

    def say(self, row: int, senior: list[int]) -> None:
        """Let a response say that these are its authors."""
        fingerprint = self.trainer._tandem.rules.fingerprint
        self.batch.non_tensor_batch[FACTS][row] = facts_of(row, fingerprint, senior)

    def update(self) -> Any:
        return self.trainer._update_actor(self.batch).meta_info["metrics"]


def test_v0_checks_measures_and_dumps_the_same() -> None:
    v0 = V0(IN_TANDEM)
    metrics = v0.step()
    assert metrics["tandem/senior_share"] == 3 / 5
    assert metrics["tandem/handoffs_per_response"] == 3 / 2
    v0.trainer._log_rollout_data(v0.batch, {"acc": [1, 0]}, {}, "folder")
    logged = v0.trainer.logged
    assert logged["acc"] == [1, 0]
    assert logged["response_ids"] == TOKENS
    assert logged["authorship"] == MASKS
    assert logged["tandem_seed"] == SEEDS


def test_v0_pads_what_is_to_be_imitated_like_its_own_masks() -> None:
    pytest.importorskip("verl", reason="verl is not installed")
    v0 = V0(IMITATING)
    v0.batch.meta_info = {}
    metrics = v0.step()
    assert metrics["actor/junior_imitation_loss"] == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert metrics["weight"] == 0.2
    assert "junior_mask" not in v0.batch.batch  # the batch is dumped later


def test_v0_takes_the_partners_term_off_the_advantages_before_the_update() -> None:
    v0 = V0(DISTILLING)
    padded = [[*row, 0.0, 0.0][:4] for row in ADVANTAGES]
    old = [[*row, 0.0, 0.0][:4] for row in OLD]
    v0.batch.batch |= {"advantages": torch.tensor(padded), "old_log_probs": torch.tensor(old)}
    metrics = v0.step()
    assert v0.batch.batch["advantages"].tolist() == [[*row, 0.0, 0.0][:4] for row in LESS]
    assert metrics["tandem/partner_kl"] == pytest.approx(PARTNER_KL)


def test_v0_stops_on_a_truncated_authorship_and_on_a_mask_that_trains_padding() -> None:
    v0 = V0(IN_TANDEM)
    v0.say(0, [1, 0])
    with pytest.raises(AuthorshipError, match="2 entries of authorship"):
        v0.step()
    v0 = V0(IN_TANDEM)
    v0.batch.batch["response_mask"][1, 3] = 1
    with pytest.raises(AuthorshipError, match="4 entries of response_mask"):
        v0.step()


def test_v0_stops_on_the_complement_of_the_replay() -> None:
    v0 = V0(IN_TANDEM)
    for row, mask in enumerate(complement(MASKS)):
        v0.say(row, mask)
        v0.batch.batch["response_mask"][row, : len(mask)] = torch.tensor(mask)
    with pytest.raises(AuthorshipError, match=r"authorship of Row 0 \(u\) is not what its tokens"):
        v0.step()


def test_v0_stops_on_an_update_that_was_not_checked() -> None:
    with pytest.raises(AuthorshipError, match="was not among the rows that the trainer checked"):
        V0(IN_TANDEM).update()
    v0 = V0(IN_TANDEM)
    v0.step()
    v0.batch.batch["response_mask"][0, 1] = 1
    with pytest.raises(AuthorshipError, match="changed between the trainer's check and the update"):
        v0.update()


def test_v0_plain_run_is_left_as_it_is() -> None:
    trainer = V0(PLAIN).trainer
    assert trainer._update_actor(None).meta_info == {"metrics": {"actor/loss": 1}}
    trainer._log_rollout_data(None, {"acc": [1]}, {}, "folder")
    assert trainer.logged == {"acc": [1]}


def unchecked(config: Any) -> Any:
    """A trainer that begins in its own way, as verl's experimental FullyAsyncTrainer does."""
    base = legacy_module(TrainerV0)
    trainer_v0.watch(base)
    trainer = object.__new__(base.RayPPOTrainer)
    TrainerV0.__init__(trainer, config, TOKENIZER)
    return trainer


def test_trainer_that_did_not_begin_with_the_checks_updates_only_without_tandem() -> None:
    with pytest.raises(EngineError, match="did not start as verl's own trainers do"):
        unchecked(IN_TANDEM)._update_actor(None)
    assert unchecked(PLAIN)._update_actor(None).meta_info == {"metrics": {"actor/loss": 1}}


def test_refused_setting_stops_the_trainer() -> None:
    with pytest.raises(ConfigError, match="schedule='words' does not exist"):
        V0(configuration({"schedule": "words"}))
