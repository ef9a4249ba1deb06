"""Validation by the senior, the team or both: who answers, under which names, dumped where."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem_plugin import (
    AuthorshipError,
    ConfigError,
    EngineError,
    TandemConfig,
    TandemRules,
    Vocabulary,
)
from tandem_plugin.patching.mixins import in_tandem
from tandem_plugin.training.authorship_wire import FACTS
from tandem_plugin.training.validation import ANSWERER
from tandem_verl import trainer_v1
from tandem_verl.agent_loop import make_trajectory, narrow
from tandem_verl.validation import ROW, AddressedPrompts

torch = pytest.importorskip("torch", reason="torch is not installed")
OmegaConf = pytest.importorskip("omegaconf", reason="verl's configuration library").OmegaConf

LETTERS = {("Ġ" if i % 3 == 0 else "") + chr(97 + i): i for i in range(24)}
TOKENIZER = SimpleNamespace(get_vocab=lambda: LETTERS, name_or_path="a test")
PROMPTS = [{"raw_prompt": ["a", "b"]}, {"raw_prompt": ["c"]}]
SAMPLES = 2


def configuration(validation: str | None, folder: Path, **trainer: Any) -> Any:
    tandem = {"schedule": "word", "cap": 4, "validation": validation}
    engine = {} if validation is None else {"additional_config": {"tandem": tandem}}
    return OmegaConf.create(
        {
            "actor_rollout_ref": {
                "model": {"path": "senior"},
                "actor": {"strategy": "fsdp2", "policy_loss": {"loss_mode": "vanilla"}},
                "rollout": {"name": "vllm", "engine_kwargs": {"vllm": engine}},
            },
            "algorithm": {"adv_estimator": "grpo"},
            "trainer": {
                "use_v1": True,
                "v1": {"trainer_mode": "sync"},
                "validation_data_dir": str(folder),
                **trainer,
            },
        }
    )


class Loader(list[Any]):
    """verl's loader of validation prompts."""

    dataset = "the data set"


class Trainer:
    """What verl's trainer has where it validates."""

    def __init__(self, config: Any, tokenizer: Any = TOKENIZER) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.val_dataloader = Loader(PROMPTS)
        self.table: list[tuple[Any, Any, Any]] = []
        self.answers: list[tuple[Any, Any]] = []
        """(answerer, number) of every prompt that was answered."""

    _tandem: Any = None

    def respond(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        """A response a sample, as the agent loops would give it, and its uid."""
        responses = []
        for i, prompt in enumerate(batch["raw_prompt"]):
            asked = {name: batch[name][i] for name in (ANSWERER, ROW) if name in batch}
            self.answers.append((asked.get(ANSWERER), asked.get(ROW)))
            for sample in range(SAMPLES):
                response = {"uid": prompt, "sample": sample, "ids": [0, 1, 2, 3]}
                if self._tandem is not None:
                    rules = self._tandem.rules
                    identity = {"step": 3, "rollout_n": 0, "validate": True}
                    named = self.name(asked, sample, i)
                    trajectory = make_trajectory(rules, identity, named)
                    output = SimpleNamespace(
                        prompt_ids=[9], response_ids=[0, 1, 2, 3], response_mask=[0] * 4
                    )
                    output.response_logprobs, output.extra_fields = None, {}
                    narrow(output, trajectory)
                    response |= output.extra_fields
                responses.append(response)
        return responses

    def _dump_generations(
        self,
        inputs: Any,
        outputs: Any,
        gts: Any,
        scores: Any,
        reward_extra_infos_dict: dict[str, list[Any]],
        dump_path: str,
    ) -> None:
        columns = {"input": inputs, **reward_extra_infos_dict}
        rows = [{name: values[i] for name, values in columns.items()} for i in range(len(inputs))]
        Path(dump_path).mkdir(parents=True, exist_ok=True)
        Path(dump_path, "3.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def _maybe_log_val_generations(self, inputs: Any, outputs: Any, scores: Any) -> None:
        self.table.extend(zip(inputs, outputs, scores, strict=True))


class Queue:
    """TransferQueue: rows by key."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def kv_batch_get(self, keys: Any, partition_id: str, select_fields: list[str]) -> Any:
        found = [self.rows[key] for key in keys]

        def ragged(values: list[Any]) -> Any:
            rows = [torch.tensor(value) for value in values]
            return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

        return {
            "responses": ragged([row["ids"] for row in found]),
            "response_mask": ragged([[0] * 4 if FACTS in row else [1] * 4 for row in found]),
            "extra_fields": np.array(found, dtype=object),
        }


class TrainerV1(Trainer):
    queue: Queue

    def __init__(self, config: Any, tokenizer: Any = TOKENIZER) -> None:
        super().__init__(config)
        self.replay_buffer = self._build_replay_buffer()
        self._init_tokenizer()

    def name(self, asked: dict[str, Any], sample: int, place: int) -> dict[str, Any]:
        return {**asked, "session_id": sample}

    def _init_tokenizer(self) -> None: ...

    def _setup(self) -> None: ...

    def _init_resource_pool_mgr(self) -> None: ...

    def fit(self, agent_loop_manager: Any) -> None: ...

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any: ...

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> None: ...

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> None: ...

    def _build_replay_buffer(self) -> Any:
        def sample(keys: list[str]) -> Any:
            return SimpleNamespace(keys=keys, partition_id="val"), {}

        return SimpleNamespace(sample=sample)

    def _validate(self) -> dict[str, float]:
        inputs, keys, scores = [], [], []
        for batch in self.val_dataloader:
            answered = {f"{r['uid']}_{r['sample']}_0": r for r in self.respond(batch)}
            self.queue.rows |= answered
            self.replay_buffer.sample(keys=list(answered))
            inputs += [r["uid"] for r in answered.values()]
            scores += [float(FACTS in r) for r in answered.values()]
            keys += answered
        self._maybe_log_val_generations(inputs=inputs, outputs=keys, scores=scores)
        if self.config.trainer.get("validation_data_dir"):
            self._dump_generations(
                inputs=inputs,
                outputs=keys,
                gts=keys,
                scores=scores,
                reward_extra_infos_dict={"uid": keys},
                dump_path=self.config.trainer.validation_data_dir,
            )
        return {"val-core/s/reward/mean@2": sum(scores) / len(scores)}


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a trainer for the setting ``validation``."""

    def started(validation: str | None, **trainer: Any) -> Any:
        config = configuration(validation, tmp_path / "validation", **trainer)
        queue = Queue()
        monkeypatch.setattr(trainer_v1, "queue", lambda: queue)
        trainer_class = TrainerV1
        if validation is not None:
            trainer_class = in_tandem(TrainerV1, trainer_v1.TrainerV1InTandem)
            config.trainer.v1.trainer_mode = "tandem_sync"
        made = trainer_class(config)
        made.queue = queue
        return made

    return started


def dumped(trainer: Any, *folders: str) -> list[dict[str, Any]]:
    file = Path(trainer.config.trainer.validation_data_dir, *folders, "3.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


SENIOR, TEAM = {"val-core/s/reward/mean@2": 0.0}, {"team/val-core/s/reward/mean@2": 1.0}


@pytest.mark.parametrize(
    ("validation", "metrics", "answerers"),
    [
        ("senior", SENIOR, ["senior"]),
        ("team", TEAM, ["team"]),
        ("both", SENIOR | TEAM, ["senior", "team"]),
    ],
)
def test_metrics_are_named_after_who_answered_and_prompts_numbered_alike(
    start: Any, validation: str, metrics: dict[str, float], answerers: list[str]
) -> None:
    trainer = start(validation)
    assert trainer._validate() == metrics
    assert trainer.answers == [(who, number) for who in answerers for number in range(3)]
    assert type(trainer.val_dataloader) is Loader
    assert trainer._tandem_pass is None


def test_plain_run_validates_as_before(start: Any) -> None:
    trainer = start(None)
    assert trainer._validate() == SENIOR
    assert trainer.answers == [(None, None)] * 3
    assert [row["input"] for row in dumped(trainer)] == ["a", "a", "b", "b", "c", "c"]
    assert not any("answered_by" in row for row in dumped(trainer))


def test_dumps_of_both_lie_apart_and_say_whose_they_are(start: Any) -> None:
    trainer = start("both")
    trainer._validate()
    senior, team = dumped(trainer, "senior"), dumped(trainer, "team")
    assert [row["input"] for row in senior] == [row["input"] for row in team] == list("aabbcc")
    assert {row["answered_by"] for row in senior} == {"senior"}
    assert {row["answered_by"] for row in team} == {"team"}
    assert {row["tandem_seed"] for row in senior} == {None}
    assert len({row["tandem_seed"] for row in team}) == 6
    assert {row["tandem_fingerprint"] for row in team} == {trainer._tandem.rules.fingerprint}


@pytest.mark.parametrize("validation", ["senior", "team"])
def test_dump_of_one_lies_where_it_was_asked_for(start: Any, validation: str) -> None:
    trainer = start(validation)
    trainer._validate()
    assert [row["answered_by"] for row in dumped(trainer)] == [validation] * 6


def test_team_draws_the_same_whether_or_not_the_senior_answers_as_well(start: Any) -> None:
    found = []
    for validation, folder in (("team", ()), ("both", ("team",))):
        trainer = start(validation)
        trainer._validate()
        found.append([row["tandem_seed"] for row in dumped(trainer, *folder)])
    assert found[0] == found[1]


def test_validates_again_after_the_team_and_without_a_dump(start: Any) -> None:
    trainer = start("both", validation_data_dir=None)
    assert trainer._validate() == trainer._validate() == SENIOR | TEAM


def test_table_of_both_is_logged_once_and_says_whose_rows_are(start: Any) -> None:
    trainer = start("both")
    trainer._validate()
    inputs = [row[0] for row in trainer.table]
    assert inputs == [f"[{who}] {prompt}" for who in ("senior", "team") for prompt in "aabbcc"]
    assert [row[2] for row in trainer.table] == [0.0] * 6 + [1.0] * 6
    trainer = start("team")
    trainer._validate()
    assert [row[0] for row in trainer.table] == list("aabbcc")


def test_failure_leaves_the_trainer_as_it_was(start: Any) -> None:
    trainer = start("both")
    trainer.config.trainer.validation_data_dir = "/dev/null/no folder"
    with pytest.raises(OSError, match="no folder"):
        trainer._validate()
    assert type(trainer.val_dataloader) is Loader
    assert trainer._tandem_pass is None


def test_response_of_someone_else_stops_the_run(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = start("team")
    monkeypatch.setattr(trainer_v1, "rows_of_keys", without_authorship(trainer_v1.rows_of_keys))
    with pytest.raises(AuthorshipError, match="has no authorship"):
        trainer._validate()


def without_authorship(rows: Any) -> Any:
    from dataclasses import replace

    return lambda *a, **k: [replace(row, authorship=None) for row in rows(*a, **k)]


def test_senior_alone_is_not_the_team(start: Any) -> None:
    trainer = start("senior")
    answered = trainer.respond(next(iter(AddressedPrompts(PROMPTS, "team"))))
    trainer.respond = lambda batch: answered
    with pytest.raises(AuthorshipError, match="senior was to answer alone"):
        trainer._validate()


def test_trainer_that_merges_validations_is_refused(start: Any) -> None:
    with pytest.raises(EngineError, match="merges the validations"):
        start("both")._validate(merged=True)


def test_prompt_that_does_not_say_whose_turn_it_is_is_refused_under_both() -> None:
    config = TandemConfig.from_mapping({"validation": "both"})
    rules = TandemRules(config, Vocabulary(tuple(LETTERS), "a test"))
    trajectory = {"step": 3, "rollout_n": 0, "validate": True}
    with pytest.raises(ConfigError, match="without saying who is to answer"):
        make_trajectory(rules, trajectory, {ROW: 0, "session_id": 0})
    for answerer in ("senior", "team"):
        sample = {ROW: 0, "session_id": 0, ANSWERER: answerer}
        made = make_trajectory(rules, trajectory, sample)
        assert (made.rule is not None) is (answerer == "team")
    assert make_trajectory(rules, trajectory | {"validate": False}, {ROW: 0}).rule


def test_addressed_prompts_are_otherwise_verls_own() -> None:
    prompts = AddressedPrompts(Loader(PROMPTS), "team")
    assert (len(prompts), prompts.dataset) == (2, "the data set")
    assert [batch["raw_prompt"] for batch in prompts] == [["a", "b"], ["c"]]
    assert PROMPTS[0].keys() == {"raw_prompt"}
