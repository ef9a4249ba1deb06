"""TRL's asynchronous rollouts in tandem, without an engine: rows, samples, and what is rejected."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import json
import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

pytest.importorskip("trl.scripts", reason="TRL is not installed")
pytest.importorskip("aiohttp", reason="aiohttp is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from shared_rollouts import PIECES
from trl.experimental.async_grpo import AsyncGRPOConfig
from trl.experimental.async_grpo.async_rollout_worker import (
    AsyncRolloutWorker,
    RolloutSample,
    TurnRecord,
    _AsyncRolloutLoop,
    _chain_to_sequences,
)
from trl_trainer import word_tokenizer

from tandem_plugin import EngineError, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.calls import Trajectory
from tandem_plugin.training.server import VLLMServer
from tandem_plugin.training.start import Start
from tandem_trl import async_rollouts
from tandem_trl.async_rollouts import (
    TandemLoop,
    TandemRolloutWorker,
    TandemSample,
    narrowed,
)

TANDEM = {"schedule": "word", "cap": 4, "measure_every": 0}
PLACE = (3, 1)


VOCABULARY = Vocabulary(PIECES, "a test")


@pytest.fixture(autouse=True)
def _vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a tokenizer which does not decode as its pieces say."""
    monkeypatch.setattr(Vocabulary, "from_tokenizer", lambda tokenizer: VOCABULARY)


def rules(**settings: Any) -> TandemRules:
    return TandemRules(TandemConfig.from_mapping({**TANDEM, **settings}), VOCABULARY)


def conversation(*turns: tuple[list[int], list[int]]) -> tuple[Trajectory, list[Any]]:
    """A trajectory of turns, each its prompt and its tokens, and TRL's rows of it."""
    trajectory = Trajectory.at(rules(), *PLACE, step=1)
    records = []
    for prompt, tokens in turns:
        trajectory.call(prompt).returned(tokens)
        records.append(TurnRecord(prompt, tokens, [-1.5] * len(tokens)))
    sequences, _ = _chain_to_sequences(records, "a rollout", 1024)
    return trajectory, narrowed(trajectory, sequences)


def authors(trajectory: Trajectory, call: int, tokens: list[int]) -> list[int]:
    seed = trajectory.seed_of_call(call)
    return [int(bit) for bit in rules().default.replay(tokens, seed).senior]


FIRST = [4, 5, 6, 7, 9, 10, 12, 3]
SECOND = [8, 11, 15, 14, 13]


def test_turn_that_trl_tokenizes_again_is_trained_up_to_the_difference() -> None:
    """Its rest is context; the next turn follows the text as it now is."""
    prompt = [20, 21]
    again = prompt + FIRST[:5] + [1, 1] + [22, 23]
    trajectory, (row,) = conversation((prompt, FIRST), (again, SECOND))
    kept = authors(trajectory, 0, FIRST)[:5]
    assert row.completion_mask == [0, 0, *kept, 0, 0, 0, 0, *authors(trajectory, 1, SECOND)]


def test_turn_of_a_rewritten_conversation_is_a_row_of_its_own() -> None:
    rewritten = [20, 18, 19]
    trajectory, rows = conversation(([20, 21], FIRST), (rewritten, SECOND))
    assert [row.completion_mask for row in rows] == [
        [0, 0, *authors(trajectory, 0, FIRST)],
        [0, 0, 0, *authors(trajectory, 1, SECOND)],
    ]
    assert [row.tandem[0] for row in rows] == [2, 3]


def worker(tmp_path: Path, **more: Any) -> TandemRolloutWorker:
    args = AsyncGRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    given = {"tandem": TANDEM, "dataset": None, "reward_funcs": [], **more}
    return TandemRolloutWorker(
        args, model_name="a/model", processing_class=word_tokenizer(), **given
    )


def sample(row: Any, **more: Any) -> TandemSample:
    return TandemSample(
        prompt=[],
        completion=[],
        input_ids=np.array(row.input_ids),
        completion_mask=np.array(row.completion_mask),
        old_log_probs=np.array(row.old_log_probs, np.float32),
        advantage=1.0,
        model_version=1,
        group_id=3,
        metrics={"reward": 0.5},
        tandem=row.tandem,
        **more,
    )


def taken(running: TandemRolloutWorker, one: Any) -> Any:
    running.own_queue.put(one)
    return running.rollout_buffer.get(timeout=120)


def test_sample_is_replayed_once_and_cannot_change_afterwards(tmp_path: Path) -> None:
    _, (row,) = conversation(([20, 21], FIRST))
    running = worker(tmp_path, tandem={**TANDEM, "rollouts": str(tmp_path / "rollouts")})
    found = taken(running, sample(row, gold="42"))
    assert found.completion_mask.tolist() == row.completion_mask
    with pytest.raises(ValueError, match="read-only"):
        found.completion_mask[2] = 1
    metrics = running.metrics_queue.get(timeout=120)
    share, written = metrics["tandem/senior_share"]
    assert (share, written) == (sum(row.completion_mask), len(FIRST))
    with refused("row-seed-repeated"):
        taken(running, sample(row))
    running.update_model_version(1)
    (line,) = (tmp_path / "rollouts" / "0.jsonl").read_text().splitlines()
    assert json.loads(line)["response_ids"] == FIRST
    assert (json.loads(line)["gts"], json.loads(line)["score"]) == ("42", 0.5)


def test_measures_that_a_server_does_not_give_stop_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are figures of a log; samples are checked one by one."""
    running = worker(tmp_path, tandem={**TANDEM, "measure_every": 1})
    running._process = SimpleNamespace(exitcode=None)

    def reset(server: Any, path: str, body: Any = None) -> Any:
        raise EngineError("server-unreachable", url=server.url, reason="Connection reset by peer")

    monkeypatch.setattr(VLLMServer, "send", reset)
    running.update_model_version(1)
    assert "measures of the engine are missing" in caplog.text
    assert "Connection reset by peer" in caplog.text
    running._process = None


def test_child_that_is_dead_already_is_not_told_to_stop(tmp_path: Path) -> None:
    """The event on which it waited could not be set: the trainer would hang where it should end."""
    running, told = worker(tmp_path), []
    running._stop_event_mp = SimpleNamespace(set=lambda: told.append("stop"))
    living = SimpleNamespace(
        exitcode=None, _popen=1, join=lambda timeout: None, is_alive=lambda: False
    )
    for process, expected in ((SimpleNamespace(exitcode=1), []), (living, ["stop"])):
        running._process = process
        running.stop()
        assert (running._process, told) == (None, expected)


@pytest.mark.parametrize("position", range(2 + len(FIRST)))
def test_one_token_more_or_less_never_reaches_the_trainer(tmp_path: Path, position: int) -> None:
    _, (row,) = conversation(([20, 21], FIRST))
    changed = sample(row)
    changed.completion_mask[position] ^= 1
    with refused("mask-not-seniors", "trained-tokens-without-call"):
        worker(tmp_path).admit(changed)


def test_sample_without_authorship_never_reaches_the_trainer(tmp_path: Path) -> None:
    _, (row,) = conversation(([20, 21], FIRST))
    running = worker(tmp_path)
    with refused("trl-sample-without-authorship"):
        running.admit(dataclasses.replace(sample(row), tandem=None))
    names = [one.name for one in dataclasses.fields(RolloutSample)]
    plain = RolloutSample(**{name: getattr(sample(row), name) for name in names})
    with refused("trl-sample-without-authorship"):
        running.admit(plain)


def test_worker_with_settings_or_a_loop_that_do_not_go_with_tandem_is_rejected(
    tmp_path: Path,
) -> None:
    with refused("trl-imitation-unsupported"):
        worker(tmp_path, tandem={**TANDEM, "lambda_jun": 0.1})
    with refused("setting-unknown"):
        worker(tmp_path, tandem={**TANDEM, "pp": 0.1})

    class Foreign(TandemRolloutWorker):
        _loop_cls = _AsyncRolloutLoop

    with refused("trl-worker-without-tandem", loop="_AsyncRolloutLoop"):
        Foreign(None, tandem=TANDEM, model_name="", processing_class=None)


def test_worker_starts_only_with_its_callback_in_the_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it nothing would check where the training begins, or note its settings."""
    monkeypatch.setattr(VLLMServer, "check", lambda *_: None)
    monkeypatch.setattr(AsyncRolloutWorker, "start", lambda self: None)
    monkeypatch.setattr(TandemRolloutWorker, "_of_server", lambda self, method: [])
    running = worker(tmp_path)
    with refused("trl-worker-without-callback"):
        running.start()
    callback = running.callback()
    with refused("trl-worker-without-callback"):  # made, and not passed on
        running.start()
    args = SimpleNamespace(output_dir=str(tmp_path), resume_from_checkpoint=None)
    callback.on_train_begin(args, SimpleNamespace(global_step=0, stateful_callbacks={}), None)
    running.start()


def begun_worker(tmp_path: Path, model: Any, **more: Any) -> TandemRolloutWorker:
    running = worker(tmp_path, **more)
    args = SimpleNamespace(output_dir=str(tmp_path), resume_from_checkpoint=None)
    state = SimpleNamespace(global_step=0, stateful_callbacks={})
    running.callback().on_train_begin(args, state, None, model)
    return running


@pytest.mark.parametrize("listed", [9, [9, 2], None])
def test_worker_knows_every_end_of_both_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: Any
) -> None:
    """TRL counts a response that ends at an unknown id as clipped."""
    monkeypatch.setattr(VLLMServer, "check", lambda *_: None)
    monkeypatch.setattr(Start, "check", lambda self, run: None)
    monkeypatch.setattr(AsyncRolloutWorker, "start", lambda self: None)
    monkeypatch.setattr(TandemRolloutWorker, "_of_server", lambda self, method: [[17]])
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=listed))
    own = word_tokenizer().eos_token_id
    running = begun_worker(tmp_path, model)
    running.start()
    expected = [own, *([] if listed is None else [listed] if listed == 9 else listed), 17]
    assert running._loop_kwargs["eos_token_ids"] == list(dict.fromkeys(expected))
    named = begun_worker(tmp_path, model, eos_token_ids=[4])
    named.start()
    assert named._loop_kwargs["eos_token_ids"] == [4]


def bare_loop(url: str = "") -> TandemLoop:
    """A loop of which only its requests are used."""
    loop = object.__new__(TandemLoop)
    loop.vllm_server_url, loop._counters = url, defaultdict(float)
    return loop


def test_turn_of_no_conversation_never_reaches_the_server() -> None:
    async def turn() -> None:
        async_rollouts._trajectory.set(None)
        with refused("trl-turn-without-row"):
            await bare_loop()._generate_one_turn([1, 2])

    asyncio.run(turn())


@pytest.mark.parametrize("status", [200, 400, 404])
def test_request_carries_its_turn_and_is_not_repeated_once_it_is_rejected(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL repeats it thirty times, with pauses of up to 16 seconds."""
    import aiohttp
    from aiohttp import web
    from aiohttp.test_utils import TestServer

    bodies = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.json_response({"choices": ["an answer"]}, status=status)

    class Server(VLLMServer):
        def send(self, path: str, body: Any = None) -> tuple[int, str]:
            return 400, "[prompt-length-too-large]"

    async def turn() -> Any:
        application = web.Application()
        application.router.add_post("/v1/completions", answer)
        call = Trajectory.at(rules(), *PLACE, step=1).call([1, 2])
        async_rollouts._request.set(call.request)
        async with TestServer(application) as server, aiohttp.ClientSession() as session:
            loop = bare_loop(str(server.make_url("")).rstrip("/"))
            loop.session = session
            found = await loop._post("/v1/completions", {"prompt": [1, 2]}, 20, 1)
        assert json.loads(bodies[0]["vllm_xargs"]["tandem"]) == call.request
        return found

    monkeypatch.setattr(async_rollouts, "VLLMServer", Server)
    if status == 200:
        assert asyncio.run(turn()) == {"choices": ["an answer"]}
        return
    with refused("server-request-rejected", answer="[prompt-length-too-large]"):
        asyncio.run(turn())
    assert len(bodies) == 1


MODULE = "trl.experimental.async_grpo.async_rollout_worker"
HOOKS = [
    ("_AsyncRolloutLoop._generate_one", ["self", "prompt", "tool_dict", "tools", "group_id"]),
    ("_AsyncRolloutLoop._generate_one_turn", ["self", "prompt_ids"]),
    ("_AsyncRolloutLoop._post", ["self", "path", "payload", "timeout", "max_retries"]),
    ("_AsyncRolloutLoop._score_group", ["self", "group"]),
    ("AsyncRolloutWorker.start", ["self"]),
    ("AsyncRolloutWorker.stop", ["self"]),
    ("AsyncRolloutWorker.update_model_version", ["self", "model_version"]),
]


@pytest.mark.hooks
@pytest.mark.parametrize(("name", "parameters"), HOOKS)
def test_hook_is_where_the_subclass_expects_it(name: str, parameters: list[str]) -> None:
    found = importlib.import_module(MODULE)
    for part in name.split("."):
        found = getattr(found, part)
    assert list(inspect.signature(found).parameters) == parameters


@pytest.mark.hooks
def test_what_the_subclasses_read_of_trl_is_there() -> None:
    source = inspect.getsource(importlib.import_module(MODULE))
    for text in (
        "self._loop_cls,",
        "self._generate_one(prompt, tool_dict=tool_dict, tools=tools, group_id=group_id)",
        "turn_ids, turn_logprobs = await self._generate_one_turn(prompt_ids)",
        'lambda: self._post("/v1/completions", payload, self.request_timeout)',
        "samples = await self._score_group(group)",
        "for seq in sequences:",
    ):
        assert text in source, text
    trainer = inspect.getsource(
        importlib.import_module("trl.experimental.async_grpo.async_grpo_trainer")
    )
    for text in (
        "self.rollout_queue = self.rollout_worker.rollout_buffer",
        "sample = self.queue.get(timeout=self.poll_interval_s)",
        "self.rollout_worker.metrics_queue.get_nowait()",
        '_loop_kwargs["dataset_start_index"] = rollout_state["prompt_index"]',
    ):
        assert text in trainer, text


@pytest.mark.hooks
def test_worker_takes_what_the_trainer_gives_its_own() -> None:
    """A setting of another value than the loss has would bias it."""
    trainer = importlib.import_module("trl.experimental.async_grpo.async_grpo_trainer")
    (created,) = re.findall(
        r"self\.rollout_worker = AsyncRolloutWorker\((.*?)\n {16}\)",
        inspect.getsource(trainer),
        re.DOTALL,
    )
    theirs = dict(re.findall(r"(\w+)=self\.args\.(\w+)", created))
    assert theirs.pop("max_inflight_tasks") == "max_inflight_tasks"
    assert theirs == async_rollouts._OF_CONFIG
    others = set(re.findall(r"^ +(\w+)=", created, re.MULTILINE)) - theirs.keys()
    assert others == {
        *("model_name", "lora_name", "dataset", "reward_funcs", "processing_class"),
        *("eos_token_ids", "tools", "environment_factory", "max_inflight_tasks"),
    }
