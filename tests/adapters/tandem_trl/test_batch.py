"""The TRL adapter without an engine: what is rejected, a batch's place, what a loss may see."""

from __future__ import annotations

import importlib
import inspect
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

pytest.importorskip("trl", reason="TRL is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from tandem_plugin import TandemConfig, TandemRules, Vocabulary  # noqa: E402
from tandem_plugin.training.checkpoint_note import NOTE  # noqa: E402
from tandem_trl import engine, rollouts  # noqa: E402
from tandem_trl.batch import TRLRun  # noqa: E402
from tandem_trl.checkpoints import note_checkpoints  # noqa: E402
from tandem_trl.refusals import SOUND_LOSSES, check_trainer  # noqa: E402

FOLDER = Path(__file__).parent  # no checkpoint
PIECES = tuple(f"Ġ{i}" if i % 3 == 0 else str(i) for i in range(24))


def made_trainer(rank: int = 0, parallel: int = 1, training: bool = True, **more: Any) -> Any:
    """What the adapter reads of a ``GRPOTrainer``."""
    arguments = {"use_vllm": True, "vllm_mode": "colocate", "loss_type": "dapo", **more}
    return SimpleNamespace(
        args=SimpleNamespace(**arguments),
        tools=more.get("tools"),
        environment_factories=more.get("environment_factories"),
        model=SimpleNamespace(training=training, name_or_path=str(FOLDER)),
        state=SimpleNamespace(global_step=4),
        accelerator=SimpleNamespace(process_index=rank, is_main_process=rank == 0),
        vllm_generation=SimpleNamespace(tensor_parallel_size=parallel),
        num_generations=4,
        num_generations_eval=2,
        mask_truncated_completions=more.get("mask_truncated_completions", False),
        _metrics={"train": defaultdict(list)},
    )


@pytest.fixture
def begun() -> Any:
    def begin(trainer: Any, **settings: Any) -> TRLRun:
        config = TandemConfig.from_mapping({"schedule": "word", "measure_every": 0, **settings})
        rules = TandemRules(config, Vocabulary(PIECES, "a test"))
        return TRLRun(config, rules, trainer, SimpleNamespace())

    return begin


@pytest.mark.parametrize(
    ("settings", "arguments", "code", "fields"),
    [
        ({}, {"use_vllm": False}, "trl-engine-not-vllm", {"value": False}),
        ({}, {"vllm_mode": "server"}, "trl-server-mode-unsupported", {"value": "server"}),
        ({}, {"tools": [print]}, "trl-own-mask", {"key": "tools"}),
        (
            {},
            {"environment_factories": {"": print}},
            "trl-own-mask",
            {"key": "environment_factories"},
        ),
        ({"lambda_jun": 0.1}, {}, "trl-imitation-unsupported", {"value": 0.1}),
        ({"validation": "both"}, {}, "trl-validation-unsupported", {"value": "both"}),
        ({}, {"loss_type": "new"}, "trainer-setting-untested", {"setting": "loss_type=new"}),
    ],
)
def test_setting_that_does_not_go_with_tandem_is_rejected(
    settings: dict[str, Any], arguments: dict[str, Any], code: str, fields: dict[str, Any]
) -> None:
    config = TandemConfig.from_mapping({"schedule": "word", **settings})
    with refused(code, **fields):
        check_trainer(made_trainer(**arguments), config)


def test_every_loss_of_trl_is_either_sound_or_unproven() -> None:
    source = inspect.getsource(importlib.import_module("trl.trainer.grpo_trainer"))
    for loss in SOUND_LOSSES:
        assert f'"{loss}"' in source
        assert not check_trainer(made_trainer(loss_type=loss), TandemConfig()).warnings
    allowed = TandemConfig.from_mapping({"schedule": "word", "unproven": ["loss"]})
    assert len(check_trainer(made_trainer(loss_type="new"), allowed).warnings) == 1


@given(
    groups=st.integers(1, 3),
    parallel=st.sampled_from([1, 2, 4]),
    prompts=st.integers(1, 5),
    calls=st.integers(1, 3),
)
def test_every_response_of_all_processes_has_a_seed_of_its_own(
    groups: int, parallel: int, prompts: int, calls: int
) -> None:
    """Ranks of a tensor-parallel group ask for the same rows; each keeps its own."""
    config = TandemConfig.from_mapping({"schedule": "word", "measure_every": 0})
    rules = TandemRules(config, Vocabulary(PIECES, "a test"))
    trainers = [made_trainer(rank, parallel) for rank in range(groups * parallel)]
    runs = [TRLRun(config, rules, one, SimpleNamespace()) for one in trainers]
    own, asked = [], []
    for _ in range(calls):
        for rank, run in enumerate(runs):
            batch = run.begin_batch(prompts)
            seeds = [one.seed_of_call(0) for one in batch.trajectories]
            asked.append((rank // parallel, tuple(seeds)))
            own += seeds[batch.own : batch.own + prompts]
    assert len(set(own)) == len(own) == calls * groups * parallel * prompts
    assert len(set(asked)) == calls * groups
    assert sorted(own) == sorted({seed for _, seeds in asked for seed in seeds})


def test_batch_says_its_step_its_phase_and_who_writes(begun: Any) -> None:
    training = begun(made_trainer()).begin_batch(8)
    assert (training.phase, training.step, training.by_team) == ("training", 5, True)
    assert training.group_size == 4
    alone = begun(made_trainer(training=False)).begin_batch(8)
    assert (alone.phase, alone.step, alone.by_team, alone.group_size) == ("validation", 4, False, 2)
    assert alone.trajectories[0].rule is None
    team = begun(made_trainer(training=False), validation="team").begin_batch(8)
    assert team.trajectories[0].rule is not None
    seeds = {one.trajectories[0].seed_of_call(0) for one in (training, alone, team)}
    assert len(seeds) == 2  # the senior alone has the place, and no draws


def taken(run: TRLRun, rows: int = 8) -> tuple[list[list[int]], list[Any]]:
    """A batch that was admitted: its prompts and rows."""
    noise = np.random.default_rng(2)
    batch = run.begin_batch(rows)
    prompts = [[1, 2, number // 4] for number in range(rows)]
    completions = [noise.integers(0, 24, int(noise.integers(1, 9))).tolist() for _ in prompts]
    for trajectory, prompt, completion in zip(
        batch.trajectories, prompts, completions, strict=True
    ):
        trajectory.call(prompt).returned(completion)
    own = batch.rows(prompts, completions, [[1] * len(one) for one in completions])
    run.take(batch, prompts, own)
    return prompts, own


def inputs_of(prompts: list[list[int]], rows: list[Any]) -> dict[str, Any]:
    """What TRL gives its loss of admitted rows, in another order and padded."""
    order = np.random.default_rng(3).permutation(len(rows))

    def padded(each: list[Any], side: str) -> Any:
        tensors = [torch.as_tensor(np.array(each[number], dtype=np.int64)) for number in order]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_side=side)

    return {
        "prompt_ids": padded(prompts, "left"),
        "prompt_mask": padded([[1] * len(one) for one in prompts], "left"),
        "completion_ids": padded([row.response_ids for row in rows], "right"),
        "completion_mask": padded([[1] * len(row.response_ids) for row in rows], "right"),
        "tool_mask": padded([row.response_mask for row in rows], "right"),
    }


@pytest.fixture
def admitted(begun: Any) -> Any:
    def admit(**more: Any) -> tuple[TRLRun, dict[str, Any]]:
        run = begun(made_trainer(**more))
        return run, inputs_of(*taken(run))

    return admit


def test_one_token_more_or_less_stops_before_the_loss(admitted: Any) -> None:
    run, inputs = admitted()
    run.check_loss(inputs)
    for row, column in torch.nonzero(inputs["completion_mask"]).tolist():
        changed = {**inputs, "tool_mask": inputs["tool_mask"].clone()}
        changed["tool_mask"][row, column] ^= 1
        with refused("mask-changed-after-check"):
            run.check_loss(changed)


def test_mask_that_is_lost_or_a_response_that_nobody_admitted_stops_before_the_loss(
    admitted: Any,
) -> None:
    run, inputs = admitted()
    with refused("mask-changed-after-check"):
        run.check_loss({name: value for name, value in inputs.items() if name != "tool_mask"})
    with refused("row-not-checked"):
        run.check_loss({**inputs, "completion_ids": inputs["completion_ids"] + 1})


def test_truncated_responses_may_be_left_out_where_trl_is_told_to(admitted: Any) -> None:
    run, inputs = admitted(mask_truncated_completions=True)
    left = {**inputs, "completion_mask": inputs["completion_mask"].clone()}
    left["completion_mask"][0] = 0
    run.check_loss(left)
    added = {**inputs, "tool_mask": torch.ones_like(inputs["tool_mask"])}
    with refused("mask-changed-after-check"):
        run.check_loss(added)


def test_checkpoints_say_with_which_settings_they_were_made(
    begun: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: dict[str, Any] = {}  # as trainer_state.json has it

    def trained(
        step: int,
        start: str = "A/base",
        named: Any = None,
        elsewhere: bool = False,
        **settings: Any,
    ) -> Any:
        """The callback of a training that begins after a step; elsewhere: in another folder."""
        callbacks: list[Any] = []
        trainer = made_trainer(output_dir=str(tmp_path), resume_from_checkpoint=named)
        trainer.model.name_or_path, trainer.state.global_step = start, step
        trainer.state.stateful_callbacks = kept if elsewhere else {}
        trainer.add_callback = callbacks.append
        note_checkpoints(begun(trainer, **settings), trainer)
        (callback,) = callbacks
        return callback, trainer.args

    callback, args = trained(0)
    for step, is_main in ((4, True), (8, False)):
        state = SimpleNamespace(global_step=step, is_world_process_zero=is_main)
        callback.on_save(args, state, None)
    assert [file.parent.name for file in tmp_path.rglob(NOTE)] == ["checkpoint-4"]
    callback.on_train_end(args, SimpleNamespace(is_world_process_zero=True), None)
    assert (tmp_path / NOTE).exists()
    trained(4)
    assert capsys.readouterr().out == ""
    for named in (None, True, str(tmp_path / "checkpoint-4")):
        trained(4, named=named, p=0.25)
        assert "with changes: p=0.25 (was null); fingerprint=" in capsys.readouterr().out
    trained(0, elsewhere=True)
    trained(8, elsewhere=True, p=0.25)
    assert "with changes: p=0.25 (was null); fingerprint=" in capsys.readouterr().out
    with refused("checkpoint-tandem-dropped", junior="A/base"):
        trained(4, "A/trained")
    with refused("senior-tandem-dropped"):  # the senior that this training has exported
        trained(0, str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "engine_arguments", "named"),
    [
        ({}, {}, ""),
        ({"top_k": 3}, {}, "top_k=3"),
        ({"min_p": 0.1, "repetition_penalty": 1.2}, {}, "min_p=0.1, repetition_penalty=1.2"),
        ({"generation_kwargs": {"top_p": 0.5, "stop": ["a"]}}, {}, "top_p=0.5"),
        ({"generation_kwargs": {"logit_bias": {5: 1}}}, {}, "logit_bias={5: 1}"),
        ({"generation_kwargs": {"temperature": 0.6}}, {}, "temperature=0.6"),
        ({"structured_outputs_regex": "a+"}, {}, "structured_outputs='a+'"),
        ({}, {"logits_processors": ["a.b:C"]}, "logits_processors=['a.b:C']"),
    ],
)
def test_options_that_filter_sampled_tokens_are_told_when_the_engine_starts(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, Any],
    engine_arguments: dict[str, Any],
    named: str,
) -> None:
    monkeypatch.setattr(engine, "_next", [])
    usual = {"temperature": 0.9, "top_k": 0, "top_p": 1.0, "min_p": None, "repetition_penalty": 1.0}
    usual |= {"mode": "colocate", "generation_kwargs": {}, "structured_outputs_regex": None}
    engine.start_next_engine_in_tandem(TandemConfig(), engine_arguments, lambda _: None)
    engine._start_engine(lambda _: None, SimpleNamespace(**{**usual, **settings}))
    lines = [one for one in capsys.readouterr().err.splitlines() if "Importance" in one]
    told = [one.partition(": ")[2].partition(": tokens")[0] for one in lines]
    assert told == ([named] if named else [])


def test_a_response_without_any_reward_has_no_score(begun: Any) -> None:
    """TRL logs a reward of None as NaN."""
    from collections import deque

    nan = float("nan")
    rewards = {"first": deque([1.0, nan, nan]), "second": deque([0.5, 0.5, nan])}
    trainer = SimpleNamespace(
        _logs={"rewards": rewards},
        reward_func_names=["first", "second"],
        reward_weights=torch.tensor([1.0, 2.0]),
        mask_truncated_completions=False,
    )
    assert begun(trainer)._scores() == [2.0, 1.0, None]


def test_response_that_the_junior_ended_is_not_truncated(monkeypatch: pytest.MonkeyPatch):
    """TRL knows the senior's ends alone, and would keep such responses out of training."""
    seen = []

    def added(vllm_config: Any) -> frozenset[int]:
        seen.append(vllm_config)
        return frozenset({9, 7})

    monkeypatch.setattr(rollouts, "added_ends", added)
    trainer = SimpleNamespace(eos_token_ids=[3])
    started: Any = SimpleNamespace(llm_engine=SimpleNamespace(vllm_config="the engine's"))
    rollouts.know_ends(trainer, started)
    assert trainer.eos_token_ids == [3, 7, 9]
    assert seen == ["the engine's"]
