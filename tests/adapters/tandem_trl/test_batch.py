"""The TRL adapter without an engine: what is rejected, a batch's place, what a loss may see."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_pictures import picture
from refused import refused
from started import started

pytest.importorskip("trl.scripts", reason="TRL is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from trl import GRPOTrainer  # noqa: E402
from trl.experimental.gmpo import GMPOTrainer  # noqa: E402

from tandem_plugin import TandemConfig, TandemRules, Vocabulary  # noqa: E402
from tandem_plugin.training.calls import Response  # noqa: E402
from tandem_plugin.training.checkpoint_note import NOTE  # noqa: E402
from tandem_plugin.training.rows import Row  # noqa: E402
from tandem_plugin.training.start import Start  # noqa: E402
from tandem_plugin.training.validation_log import CHANGE  # noqa: E402
from tandem_trl import engine, rollouts  # noqa: E402
from tandem_trl.batch import TRLRun  # noqa: E402
from tandem_trl.checkpoints import note_checkpoints  # noqa: E402
from tandem_trl.engine import TandemPrompt, answered  # noqa: E402
from tandem_trl.start import SOUND_LOSSES, GRPOSettings  # noqa: E402

FOLDER = Path(__file__).parent  # no checkpoint
PIECES = tuple(f"Ġ{i}" if i % 3 == 0 else str(i) for i in range(24))


def made_trainer(rank: int = 0, training: bool = True, **more: Any) -> Any:
    """What the adapter reads of a ``GRPOTrainer``."""
    arguments = {"use_vllm": True, "vllm_mode": "colocate", "loss_type": "dapo", "world_size": 1}
    arguments |= {"vllm_tensor_parallel_size": 1, **more}
    kind = more.get("kind", GRPOTrainer)
    return SimpleNamespace(
        args=SimpleNamespace(**arguments),
        tools=more.get("tools"),
        compute_loss=kind.compute_loss,
        _compute_loss=kind._compute_loss,
        model=SimpleNamespace(training=training, name_or_path=str(FOLDER)),
        state=SimpleNamespace(global_step=4),
        accelerator=SimpleNamespace(process_index=rank, is_main_process=rank == 0),
        vllm_generation=SimpleNamespace(tensor_parallel_size=1),
        num_generations=4,
        num_generations_eval=2,
        mask_truncated_completions=more.get("mask_truncated_completions", False),
        _metrics={"train": defaultdict(list)},
    )


@pytest.fixture
def begun() -> Any:
    def begin(trainer: Any, engine: Any = None, **settings: Any) -> TRLRun:
        config = TandemConfig.from_mapping({"schedule": "word", "measure_every": 0, **settings})
        rules = TandemRules(config, Vocabulary(PIECES, "a test"))
        return TRLRun(rules, trainer, engine)

    return begin


def checked(trainer: Any, config: TandemConfig) -> Start:
    return started(GRPOSettings.of(trainer.args, {}, None, trainer, trainer.tools), config)


TOOLS: dict[str, Any] = {"tools": [print]}
SHARED_ENGINE = "trl-tools-of-several-processes"


@pytest.mark.parametrize(
    ("settings", "arguments", "code", "fields"),
    [
        ({}, {"use_vllm": False}, "trl-engine-not-vllm", {"value": False}),
        ({}, {**TOOLS, "vllm_mode": "server", "world_size": 2}, SHARED_ENGINE, {"key": "tools"}),
        ({}, {**TOOLS, "vllm_tensor_parallel_size": 2}, SHARED_ENGINE, {"key": "tools"}),
        ({"lambda_jun": 0.1}, {}, "trl-imitation-unsupported", {"value": 0.1}),
        ({"images": True}, {"vllm_mode": "server"}, "trl-images-untested", {"value": True}),
        ({}, {"loss_type": "new"}, "trainer-setting-untested", {"setting": "loss_type=new"}),
    ],
)
def test_setting_that_does_not_go_with_tandem_is_rejected(
    settings: dict[str, Any], arguments: dict[str, Any], code: str, fields: dict[str, Any]
) -> None:
    config = TandemConfig.from_mapping({"schedule": "word", **settings})
    with refused(code, **fields):
        checked(made_trainer(**arguments), config)


@pytest.mark.parametrize(
    "arguments",
    [
        TOOLS,
        {**TOOLS, "world_size": 4},  # an engine for each process
        {**TOOLS, "vllm_mode": "server"},
        {"vllm_mode": "server", "world_size": 4},
        {"vllm_tensor_parallel_size": 2, "world_size": 4},
        {"kind": GMPOTrainer},
    ],
)
def test_setting_that_goes_with_tandem_is_accepted(arguments: dict[str, Any]) -> None:
    assert not checked(made_trainer(**arguments), TandemConfig()).warnings


@pytest.mark.parametrize("arguments", [{}, TOOLS])
def test_images_go_with_an_engine_in_the_trainers_process(arguments: dict[str, Any]) -> None:
    assert not checked(made_trainer(**arguments), TandemConfig(images=True)).warnings


@pytest.mark.parametrize("method", ["compute_loss", "_compute_loss"])
def test_a_trainers_own_loss_is_unproven(method: str) -> None:
    """It may not read the mask."""

    def loss(self: Any, model: Any, inputs: Any) -> Any:
        return inputs["completion_mask"].sum()

    own = type("Own", (GRPOTrainer,), {method: loss})
    with refused("trainer-setting-untested"):
        checked(made_trainer(kind=own), TandemConfig())
    allowed = TandemConfig.from_mapping({"schedule": "word", "unproven": ["loss"]})
    assert len(checked(made_trainer(kind=own), allowed).warnings) == 1


def test_every_loss_of_trl_is_either_sound_or_unproven() -> None:
    source = inspect.getsource(importlib.import_module("trl.trainer.grpo_trainer"))
    for loss in SOUND_LOSSES:
        assert f'"{loss}"' in source
        assert not checked(made_trainer(loss_type=loss), TandemConfig()).warnings
    allowed = TandemConfig.from_mapping({"schedule": "word", "unproven": ["loss"]})
    assert len(checked(made_trainer(loss_type="new"), allowed).warnings) == 1


@given(
    processes=st.integers(1, 6),
    prompts=st.integers(1, 5),
    calls=st.integers(1, 3),
)
def test_every_response_of_all_processes_has_a_seed_of_its_own(
    processes: int, prompts: int, calls: int
) -> None:
    config = TandemConfig.from_mapping({"schedule": "word", "measure_every": 0})
    rules = TandemRules(config, Vocabulary(PIECES, "a test"))
    trainers = [made_trainer(rank) for rank in range(processes)]
    runs = [TRLRun(rules, one, None) for one in trainers]
    seeds = [
        trajectory.seed_of_call(0)
        for _ in range(calls)
        for run in runs
        for trajectory in run.begin_batch(prompts).trajectories
    ]
    assert len(set(seeds)) == len(seeds) == calls * processes * prompts


def test_extended_prompt_stays_in_its_row_and_its_request_alone_is_pickled(begun: Any) -> None:
    """TRL's tool loop adds lists; it sends prompts to the process that talks to the engine."""
    batch = begun(made_trainer()).begin_batch(2)
    prompts = [TandemPrompt([1, 2], one) for one in batch.trajectories]
    counts = []

    def generate(prompts: Any, num_generations: int, **_: Any) -> Any:
        counts.append(num_generations)
        return prompts, [[7], [8]]

    answers = answered(generate, {}, prompts, num_generations=4)
    assert counts == [1]  # otherwise a server would get every fourth prompt
    assert answers[1] == [[7], [8]]
    written, feedback = [8], [9, 9]
    extended = prompts[1] + written + feedback
    answered(lambda asked, **_: (asked, [[5]]), {}, [extended])
    assert list(extended) == [1, 2, 8, 9, 9]
    first, second = batch.trajectories
    assert [(call.seed, call.token_ids.tolist()) for call in first.calls] == [
        (first.seed_of_call(0), [7])
    ]
    assert [(call.seed, call.token_ids.tolist()) for call in second.calls] == [
        (second.seed_of_call(0), [8]),
        (second.seed_of_call(1), [5]),
    ]
    assert extended.request["seed"] == second.seed_of_call(1)
    sent = pickle.loads(pickle.dumps(extended))
    assert (list(sent), sent.request, sent.trajectory) == ([1, 2, 8, 9, 9], extended.request, None)


@pytest.mark.parametrize("prompt", [[1, 2], TandemPrompt([1, 2])])
def test_prompt_without_a_row_never_reaches_the_engine(prompt: Any) -> None:
    def generate(prompts: Any, **_: Any) -> Any:
        raise AssertionError("sent")

    with refused("trl-prompt-without-row"):
        answered(generate, {}, [prompt])


def test_batch_says_its_step_its_phase_and_who_writes(begun: Any) -> None:
    training = begun(made_trainer()).begin_batch(8)
    assert (training.step, training.answerer) == (5, None)
    assert training.group_size == 4
    alone = begun(made_trainer(training=False)).begin_batch(8)
    assert (alone.step, alone.group_size) == (4, 2)
    assert alone.answerer == "senior"
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
    responses = [
        Response(*each, [1] * len(each[1])) for each in zip(prompts, completions, strict=True)
    ]
    own = [batch.row(number, one) for number, one in enumerate(batch.narrow(responses))]
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
    for named in (None, True, "True", str(tmp_path / "checkpoint-4")):  # as text by a command
        trained(4, named=named, p=0.25)
        assert "with changes: p=0.25 (was null); fingerprint=" in capsys.readouterr().out
    trained(0, elsewhere=True)
    trained(8, elsewhere=True, p=0.25)
    assert "with changes: p=0.25 (was null); fingerprint=" in capsys.readouterr().out
    with refused("checkpoint-tandem-dropped", junior="A/base"):
        trained(4, "A/trained")


def test_trainer_is_checked_before_it_loads_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl import GRPOConfig
    from trl.trainer import grpo_trainer

    monkeypatch.setattr(engine, "_next", [])
    monkeypatch.setattr(
        grpo_trainer, "create_model_from_path", lambda *_, **__: pytest.fail("a model was loaded")
    )
    plain = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    with refused("trl-engine-not-vllm"):
        GRPOTrainer("nobody/model", print, plain, rollout_func=rollouts.tandem_rollouts())
    shared = GRPOConfig(
        output_dir=str(tmp_path),
        use_cpu=True,
        bf16=False,
        use_vllm=True,
        vllm_tensor_parallel_size=2,
    )
    with refused(SHARED_ENGINE):
        GRPOTrainer(
            "nobody/model", print, shared, tools=[print], rollout_func=rollouts.tandem_rollouts()
        )
    with pytest.raises(pytest.fail.Exception, match="a model was loaded"):
        GRPOTrainer("nobody/model", print, plain)  # not in tandem


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
    trainer = made_trainer()

    def check(model: Any, sampled: Any) -> None:
        started(GRPOSettings.of(trainer.args, {}, None, trainer, sampled=sampled), TandemConfig())

    engine.start_next_engine_in_tandem(TandemConfig(), engine_arguments, check, lambda *_: None)
    engine._start_engine(lambda _: None, SimpleNamespace(**{"model": None, **usual, **settings}))
    lines = [one for one in capsys.readouterr().err.splitlines() if "Importance" in one]
    told = [one.partition(": ")[2].partition(": tokens")[0] for one in lines]
    assert told == ([named] if named else [])


@pytest.fixture
def of_server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a server's client, whose proof is scripted, by TRL's ``VLLMGeneration``."""

    def start(
        arguments: dict[str, Any], model: Any = None, checked_models: list[Any] | None = None
    ) -> tuple[Any, list[Any]]:
        checked_models = [] if checked_models is None else checked_models
        monkeypatch.setattr(engine, "_next", [])
        monkeypatch.setattr(engine, "start_client", lambda *_: "a client")
        found: list[Any] = []
        engine.start_next_engine_in_tandem(
            TandemConfig(),
            arguments,
            lambda model, sampled: checked_models.append(model),
            lambda *a: found.extend(a),
        )
        generation = SimpleNamespace(
            mode="server",
            temperature=1.0,
            generation_kwargs={},
            structured_outputs_regex=None,
            model=model or SimpleNamespace(),
        )
        engine._start_engine(lambda _: None, generation)
        return generation, found

    return start


def test_run_with_a_server_knows_its_client_and_rejects_arguments_of_an_engine(
    of_server: Any,
) -> None:
    generation, found = of_server({})
    assert found == [generation, "a client"]
    with refused("trl-engine-of-server", names="dtype"):
        of_server({"dtype": "float32"})


def test_server_gets_merged_weights_under_the_names_of_the_model(
    of_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL does not know all names that PEFT gives what it trains."""
    done: list[tuple[str, Any]] = []
    monkeypatch.setattr(engine.lora, "is_adapted", lambda model: model == "adapted")
    monkeypatch.setattr(engine.lora, "send_merged", lambda one: done.append(("send", one.model)))
    checked_models: list[Any] = []
    of_server({}, "plain", checked_models)
    of_server({}, "adapted", checked_models)
    assert checked_models == ["plain", "adapted"]
    assert done == [("send", "adapted")]


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
        accelerator=SimpleNamespace(is_main_process=True),
    )
    assert begun(trainer)._scores() == [2.0, 1.0, None]


def test_dump_has_the_right_answers_of_the_data_set(begun: Any, tmp_path: Path) -> None:
    """So that a reward of 0 can be told from a wrong grade."""
    trainer = made_trainer()
    trainer.processing_class = SimpleNamespace(decode=lambda ids: str(list(ids)))
    run = begun(trainer, rollouts=str(tmp_path))
    image = picture(size=(2_000, 500))
    rows = [
        {"prompt": "a", "answer": "7", "image": image, "images": None},
        {"prompt": "b", "solution": "$8$", "images": [image, image]},
        {"prompt": "c", "images": ["c.png"]},  # no picture of Pillow's
    ]
    calculated = run.keep_golds(lambda inputs, *rest: (inputs, rest), rows, ["a", "b", "c"], [])
    assert calculated == (rows, (["a", "b", "c"], []))
    run._scores = lambda: [5.0, 0.0, 1.0, None]  # the first is of an earlier generation
    responses = [
        ([1], Row(f"row {n}", "g", np.array([2, n]), np.array([True, True]))) for n in range(3)
    ]
    run._to_dump = (4, responses)
    run._dump()
    dumped = [json.loads(line) for line in (tmp_path / "4.jsonl").read_text().splitlines()]
    assert [(row["gts"], row["score"]) for row in dumped] == [
        ("7", 0.0),
        ("$8$", 1.0),
        (None, None),
    ]
    urls = [row.get("images", []) for row in dumped]
    assert [len(of_row) for of_row in urls] == [1, 2, 0]
    assert all(url.startswith("data:image/jpeg") for of_row in urls for url in of_row)
    assert max(map(len, urls[1])) < 20_000  # the data set's picture is larger


def test_response_that_the_junior_ended_is_not_truncated(begun: Any) -> None:
    """TRL knows the senior's ends alone, and would keep such responses out of training."""
    asked = []

    def told(method: str) -> list[list[int]]:
        asked.append(method)
        return [[9, 7], [9, 7]]

    run = begun(made_trainer(), engine=SimpleNamespace(collective_rpc=told))
    trainer = SimpleNamespace(eos_token_ids=[3])
    rollouts.know_ends(trainer, run.engine_ends())
    assert trainer.eos_token_ids == [3, 7, 9]
    assert asked == ["tandem_ends"]


def test_batch_is_finished_once_and_only_if_it_was_begun() -> None:
    """TRL's tool loop finishes the batch that the rollouts began."""
    own = object.__new__(rollouts.TandemRollouts)
    own._batch = None
    with refused("trl-batch-taken-twice"):
        own.finish_batch([])


def test_tool_loop_trains_what_is_left_of_its_own_mask_and_log_probs() -> None:
    """TRL's own, of text and feedback, go in; what the trainer gets is narrowed, both of them."""
    from tandem_plugin.training.calls import NarrowedResponse, Response
    from tandem_trl.rollouts import TandemRollouts

    taken: list[Response] = []

    def finish(responses: Any) -> list[NarrowedResponse]:
        taken.extend(responses)
        mask = np.array([True, False, False])
        return [NarrowedResponse(np.array([4, 5, 6]), mask, [-1.0, 0.0, 0.0], None)]

    rollouts = object.__new__(TandemRollouts)
    rollouts.finish_batch = finish  # type: ignore[method-assign]
    answers = ([[1, 1, 0]], ["messages"], [[4, 5, 6]], [[-1.0, -2.0, 0.0]], 3, 1)
    rollouts._shown, rollouts._fields = ["picture"], {"pixels": 1}
    turns: list[Any] = []

    def loop(*arguments: Any) -> Any:
        turns.append(arguments)
        return answers

    turn = (["prompt"], [[1, 2]], [[4]], ["text"], [[-1.0]])
    narrowed = rollouts._tool_loop(loop, *turn, None, None)
    assert turns == [(*turn, ["picture"], {"pixels": 1})]
    assert narrowed == ([[1, 0, 0]], ["messages"], [[4, 5, 6]], [[-1.0, 0.0, 0.0]], 3, 1)
    assert taken == [Response([1, 2], [4, 5, 6], [1, 1, 0], [-1.0, -2.0, 0.0])]


@pytest.mark.parametrize(
    ("problems", "validation", "is_judged"),
    [
        (range(50), "senior", True),
        ({"a": range(50), "b": range(50)}, "senior", False),  # logged one by one
        (iter(range(50)), "senior", False),  # a stream, of any length
        (None, "senior", False),
        (range(50), "team", False),
    ],
)
def test_evaluations_of_one_set_by_the_senior_alone_are_compared(
    begun: Any, problems: Any, validation: str, is_judged: bool
) -> None:
    trainer = made_trainer(training=False)
    trainer.eval_dataset, trainer._metrics["eval"] = problems, defaultdict(list)
    run = begun(trainer, validation=validation)
    changes = []
    logged: list[Any] = []

    def log(*logs: Any, **options: Any) -> None:
        logged.append((logs, options))

    for reward in (0.75, 0.5):
        of_evaluation = trainer._metrics["eval"]
        of_evaluation.clear()
        of_evaluation["reward"] += [reward, reward]
        run.log_validation(log, {"a": 1}, start=2)
        changes += of_evaluation.get(CHANGE, [])
    assert logged == [(({"a": 1},), {"start": 2})] * 2
    assert changes == ([0, -0.25] if is_judged else [])
