"""SkyRL's adapter without an engine: a generation's place, what an update sees, its checkpoints."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

pytest.importorskip("skyrl", reason="SkyRL is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

from skyrl.backends.skyrl_train.training_batch import (  # noqa: E402
    TrainingInputBatch,
    pad_training_input_batch,
)
from skyrl.train.dataset.preprocess import (  # noqa: E402
    convert_prompts_responses_to_batch_tensors,
)
from skyrl.train.generators.base import BatchMetadata, TrajectoryID  # noqa: E402

from tandem_plugin import TandemConfig, TandemRules, Vocabulary  # noqa: E402
from tandem_plugin.training.calls import Trajectory  # noqa: E402
from tandem_plugin.training.response_authorship import Call  # noqa: E402
from tandem_skyrl import batch as module  # noqa: E402
from tandem_skyrl.batch import SkyRLRun  # noqa: E402
from tandem_skyrl.rollouts import TandemGenerator, leave_out_added_end  # noqa: E402
from tandem_skyrl.trainer import TandemTrainer  # noqa: E402

PIECES = tuple(f"Ġ{i}" if i % 3 == 0 else str(i) for i in range(24))
TRAIN = BatchMetadata(global_step=3, training_phase="train")


def made_cfg(**algorithm: Any) -> Any:
    """What the adapter reads of SkyRL's settings."""
    return SimpleNamespace(
        trainer=SimpleNamespace(
            algorithm=SimpleNamespace(zero_variance_filter=False, **algorithm),
            policy=SimpleNamespace(model=SimpleNamespace(path="the/start")),
            placement=SimpleNamespace(colocate_all=False),
            fully_async=SimpleNamespace(enabled=False),
            export_path="exports",
        )
    )


@pytest.fixture
def made() -> Any:
    def make(cfg: Any = None, servers: list[str] | None = None, **settings: Any) -> SkyRLRun:
        config = TandemConfig.from_mapping(
            {"schedule": "word", "cap": 4, "measure_every": 0, **settings}
        )
        rules = TandemRules(config, Vocabulary(PIECES, "a test"))
        return SkyRLRun(rules, cfg or made_cfg(), servers or [], "senior")

    return make


class Client:
    """SkyRL's client: answers every call with tokens of its own."""

    def __init__(self) -> None:
        self._noise = np.random.default_rng(0)
        self.asked: list[dict[str, Any]] = []

    async def generate(self, input_batch: dict[str, Any], model: str | None = None) -> Any:
        self.asked.append(dict(input_batch))
        await asyncio.sleep(0)
        tokens = self._noise.integers(0, 24, int(self._noise.integers(6, 12))).tolist()
        return {
            "response_ids": [tokens],
            "response_logprobs": [[-1.0] * len(tokens)],
            "prompt_logprobs": None,
        }


class Loops:
    """As SkyRL's generator: an agent loop for each prompt, of two turns."""

    def __init__(self, inference_engine_client: Any) -> None:
        self.inference_engine_client = inference_engine_client

    async def generate(self, input_batch: Any) -> Any:
        each = [
            self.agent_loop(prompt, trajectory_id=one)
            for prompt, one in zip(
                input_batch["prompts"], input_batch["trajectory_ids"], strict=True
            )
        ]
        found = await asyncio.gather(*each)
        names = ("prompt_token_ids", "response_ids", "loss_masks", "rewards")
        output = dict(zip(names, map(list, zip(*found, strict=True)), strict=True))
        return {**output, "rollout_logprobs": [[-1.0] * len(one[1]) for one in found]}

    async def generate_batched(self, prompts: list[list[int]]) -> Any:
        """By one call for all, as SkyRL's for single turns."""
        answer = await self.inference_engine_client.generate(
            {"prompt_token_ids": prompts, "sampling_params": {"top_p": 1.0}}
        )
        responses = answer["response_ids"]
        return {
            "prompt_token_ids": prompts,
            "response_ids": responses,
            "loss_masks": [[1] * len(ids) for ids in responses],
            "rewards": [[1.0] * len(ids) for ids in responses],
            "rollout_logprobs": answer["response_logprobs"],
        }

    async def agent_loop(self, prompt: list[int], trajectory_id: Any = None) -> Any:
        response: list[int] = []
        mask: list[int] = []
        for more in ([5, 7], []):
            answer = await self.inference_engine_client.generate(
                {"prompt_token_ids": [prompt + response], "sampling_params": {"top_p": 1.0}}
            )
            (tokens,) = answer["response_ids"]
            response += [*tokens, *more]
            mask += [1] * len(tokens) + [0] * len(more)
        rewards = [0.0] * (len(response) - 1) + [float(trajectory_id.repetition_id)]
        return prompt, response, mask, rewards


def generator_of(run: SkyRLRun) -> tuple[Any, Client]:
    client = Client()
    kind = TandemGenerator.tandem_over(Loops)
    return kind(inference_engine_client=client, tandem=run), client


def generated(
    run: SkyRLRun, place: Any = TRAIN, prompts: int = 4, generator: Any = None
) -> tuple[dict[str, Any], list[str]]:
    """A generation of two samples each, and its groups."""
    if run.trainer is None:
        tokenizer = SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))
        run.trainer = SimpleNamespace(cfg=None, global_step=3, epoch=1, tokenizer=tokenizer)
    ids = [TrajectoryID(str(i // 2), i % 2) for i in range(2 * prompts)]
    asked = {
        "prompts": [[1, 2, i // 2] for i in range(2 * prompts)],
        "env_extras": [{"reward_spec": {"ground_truth": str(i // 2)}} for i in range(2 * prompts)],
        "trajectory_ids": ids,
        "batch_metadata": place,
    }
    output = asyncio.run((generator or generator_of(run)[0]).generate(asked))
    return output, [one.instance_id for one in ids]


def converted(output: dict[str, Any]) -> Any:
    """As SkyRL converts a generation."""
    names = ("prompt_token_ids", "response_ids", "rewards", "loss_masks", "rollout_logprobs")
    tensors = convert_prompts_responses_to_batch_tensors(0, *(output[name] for name in names))
    columns = ("sequences", "attention_mask", "response_mask", "rewards", "loss_mask")
    made = TrainingInputBatch(dict(zip(columns, tensors[:5], strict=True)))
    made.metadata = {}
    return made


def seeds(run: SkyRLRun, **options: Any) -> list[int]:
    output, _ = generated(run, **options)
    return [s for ids in output["response_ids"] for s, _, _ in ids.row.facts.segments]


def test_seeds_are_those_of_the_place_in_the_run(made: Any) -> None:
    run = made()
    first, second = seeds(run), seeds(run)
    assert not {*first} & {*second}  # dynamic sampling asks again within a step
    assert (seeds(again := made()), seeds(again)) == (first, second)
    later = BatchMetadata(global_step=4, training_phase="train")
    assert not {*seeds(made(), place=later)} & {*first}
    assert not {*seeds(made(seed=1))} & {*first}


def test_seeds_of_two_samples_do_not_depend_on_which_is_asked_first(made: Any) -> None:
    """Each sample of a prompt is a trajectory of its own."""

    class Backwards(Loops):
        async def agent_loop(self, prompt: list[int], trajectory_id: Any = None) -> Any:
            for _ in range(20 * (1 - trajectory_id.repetition_id)):
                await asyncio.sleep(0)  # the second sample finishes before the first begins
            return await super().agent_loop(prompt, trajectory_id=trajectory_id)

    run = made()
    kind = TandemGenerator.tandem_over(Backwards)
    backwards = seeds(run, generator=kind(inference_engine_client=Client(), tandem=run))
    assert backwards == seeds(made())


def test_seeds_of_the_asynchronous_trainer_do_not_depend_on_its_timing(made: Any) -> None:
    """Which step generates a prompt is another after a restart; its epoch is not."""
    cfg = made_cfg()
    cfg.trainer.fully_async.enabled = True
    later = BatchMetadata(global_step=5, training_phase="train")
    first = seeds(made(cfg))
    assert seeds(made(cfg), place=later) == first
    run = made(cfg)
    generated(run, prompts=1)
    run.trainer.epoch = 2
    assert not {*seeds(run)} & {*first}


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda asked: {**asked, "batch_metadata": None}, "skyrl-generation-without-place"),
        (lambda asked: {**asked, "trajectory_ids": None}, "skyrl-generation-without-place"),
    ],
)
def test_generation_without_its_place_is_rejected(made: Any, spoil: Any, code: str) -> None:
    run = made()
    generator, _ = generator_of(run)
    asked = {
        "prompts": [[1]],
        "trajectory_ids": [TrajectoryID("0", 0)],
        "batch_metadata": TRAIN,
    }
    run.trainer = SimpleNamespace()
    with refused(code):
        asyncio.run(generator.generate(spoil(asked)))


def test_loop_outside_of_a_generation_is_rejected(made: Any) -> None:
    generator, _ = generator_of(made())
    with refused("skyrl-loop-without-generation"):
        asyncio.run(generator.agent_loop([1], trajectory_id=TrajectoryID("0", 0)))


def test_call_of_several_prompts_is_rejected(made: Any) -> None:
    class Together(Loops):
        async def agent_loop(self, prompt: Any, trajectory_id: Any = None) -> Any:
            asked = {"prompt_token_ids": [prompt, prompt]}
            return await self.inference_engine_client.generate(asked)

    run = made()
    kind = TandemGenerator.tandem_over(Together)
    with refused("skyrl-call-of-several-prompts", prompts=2):
        generated(run, generator=kind(inference_engine_client=Client(), tandem=run))


class Batched(Loops):
    """As SkyRL's generator with ``generator.batched``."""

    async def generate(self, input_batch: Any) -> Any:
        return await self.generate_batched(input_batch["prompts"])


def batched(run: SkyRLRun, kind: type = Batched) -> tuple[dict[str, Any], Client]:
    client = Client()
    generator = TandemGenerator.tandem_over(kind)(inference_engine_client=client, tandem=run)
    return generated(run, generator=generator)[0], client


def test_generation_by_one_call_is_a_call_in_tandem_for_each_prompt(made: Any) -> None:
    run = made()
    output, client = batched(run)
    assert [call["prompt_token_ids"] for call in client.asked] == [
        [[1, 2, i // 2]] for i in range(8)
    ]
    requests = [call["sampling_params"]["extra_args"]["tandem"] for call in client.asked]
    assert len({one["seed"] for one in requests}) == 8
    for ids, mask, request in zip(
        output["response_ids"], output["loss_masks"], requests, strict=True
    ):
        facts = ids.row.facts
        assert facts.segments[0][0] == request["seed"]
        rule = run.rules.default
        assert mask == rule.replay(list(ids), request["seed"]).tolist()
    assert run.take(output, [str(i // 2) for i in range(8)])["tandem/senior_share"] > 0


def test_seeds_of_one_call_are_those_of_agent_loops(made: Any) -> None:
    """The same place in a run, whichever way SkyRL asks."""
    output, _ = batched(made())
    first = [ids.row.facts.segments[0][0] for ids in output["response_ids"]]
    loops, _ = generated(made())
    assert first == [ids.row.facts.segments[0][0] for ids in loops["response_ids"]]


def test_each_part_of_one_call_has_its_own_prompt_and_session_and_all_else(made: Any) -> None:
    """As SkyRL's client reads them, which counts one session per prompt."""

    class Sessions(Batched):
        async def generate_batched(self, ids: list[list[int]]) -> Any:
            sampling = {"stop": ["a"], "extra_args": {"own": 1}}
            answer = await self.inference_engine_client.generate(
                {
                    "prompts": None,
                    "prompt_token_ids": ids,
                    "session_ids": [f"session {number}" for number in range(len(ids))],
                    "sampling_params": sampling,
                    "mm_features": [{"image": number} for number in range(len(ids) - 1)],
                    "routed_experts_prompt_starts": list(range(len(ids))),
                    "cache_salt": "salt",
                }
            )
            assert sampling == {"stop": ["a"], "extra_args": {"own": 1}}
            responses = answer["response_ids"]
            return {
                "prompt_token_ids": ids,
                "response_ids": responses,
                "loss_masks": [[1] * len(response) for response in responses],
                "rewards": [[1.0] * len(response) for response in responses],
                "rollout_logprobs": answer["response_logprobs"],
            }

    _, client = batched(made(), Sessions)
    for number, call in enumerate(client.asked):
        assert call["session_ids"] == [f"session {number}"]
        assert call["prompts"] is None
        assert call["mm_features"] == [{"image": number}][: 7 - number]  # the last has none
        assert call["routed_experts_prompt_starts"] == [number]
        assert call["cache_salt"] == "salt"
        assert call["sampling_params"]["stop"] == ["a"]
        assert call["sampling_params"]["extra_args"]["own"] == 1


def test_one_call_of_other_prompts_than_the_batch_is_rejected(made: Any) -> None:
    class Fewer(Batched):
        async def generate(self, input_batch: Any) -> Any:
            return await self.generate_batched(input_batch["prompts"][1:])

    with refused("skyrl-batch-differs", prompts=7, count=8):
        batched(made(), Fewer)


def test_call_for_all_outside_of_a_generation_is_rejected(made: Any) -> None:
    generator, _ = generator_of(made())
    with refused("skyrl-loop-without-generation"):
        asyncio.run(generator.generate_batched([[1]]))


def calls_of(*answers: tuple[list[int], list[int]]) -> list[Call]:
    """The calls with these prompts and tokens."""
    return [
        Call(seed, np.array(prompt, np.int64), np.array(tokens, np.int64))
        for seed, (prompt, tokens) in enumerate(answers)
    ]


@pytest.mark.parametrize(
    ("calls", "response", "mask"),
    [
        ([([1], [4, 5])], [4, 5, 23], [1, 1, 0]),  # SkyRL's, after a stop string
        ([([1], [4, 23])], [4, 23], [1, 1]),  # the model's own, which SkyRL cuts and puts back
        ([([1], [4, 23, 23])], [4, 23], [1, 1]),  # of two, SkyRL cuts one
        ([([1], [4, 5])], [4, 5], [1, 1]),  # cut at the length: nothing was added
        ([([1], [4, 23]), ([1, 4, 7], [])], [4, 7, 23], [1, 1, 0]),
        ([([1], [4, 23]), ([1, 4, 7], [23])], [4, 7, 23], [1, 1, 1]),
        ([([1], [4, 5]), ([9], [6, 23])], [4, 5, 23], [1, 1, 0]),  # then a judge ended its verdict
        ([([1], [4, 23]), ([9], [6, 7])], [4, 23], [1, 1]),
        ([([1], [4, 23]), ([1], [6, 7])], [4, 23], [1, 1]),  # the first of two was kept
        ([([1, 4, 23], [5])], [4, 23], [1, 0]),  # in a prompt alone
        ([([1], [4])], [], []),
    ],
)
def test_end_that_skyrl_adds_is_not_trained(
    calls: list[Any], response: list[int], mask: list[int]
) -> None:
    output = SimpleNamespace(prompt_ids=[1], response_ids=response, loss_mask=[1] * len(response))
    trajectory = Trajectory(None, lambda call: call, calls=calls_of(*calls))
    leave_out_added_end(output, trajectory, 23)
    assert output.loss_mask == mask


@pytest.mark.parametrize("judges", [False, True])
@pytest.mark.parametrize(
    ("answer", "trained"), [([4, 5], [True, True, False]), ([4, 5, 23], [True, True, True])]
)
def test_loop_of_one_message_leaves_the_added_end_out(
    made: Any, judges: bool, answer: list[int], trained: list[bool]
) -> None:
    """Whichever call came last: a loop may ask for a verdict after its last turn."""

    class Scripted(Client):
        async def generate(self, input_batch: dict[str, Any], model: str | None = None) -> Any:
            is_verdict = input_batch["prompt_token_ids"] == [[9, 9]]
            tokens = ([6, 23] if len(answer) == 2 else [6, 7]) if is_verdict else list(answer)
            return {"response_ids": [tokens]}

    class OneMessage(Loops):
        use_conversation_multi_turn = False
        tokenizer = SimpleNamespace(eos_token_id=23)

        async def generate(self, input_batch: Any) -> Any:
            prompts, ids = input_batch["prompts"], input_batch["trajectory_ids"]
            outputs = [
                await self.agent_loop(prompt, trajectory_id=trajectory_id)
                for prompt, trajectory_id in zip(prompts, ids, strict=True)
            ]
            return {
                "prompt_token_ids": prompts,
                "response_ids": [output.response_ids for output in outputs],
                "loss_masks": [output.loss_mask for output in outputs],
                "rewards": [[1.0] * len(output.response_ids) for output in outputs],
                "rollout_logprobs": None,
            }

        async def agent_loop(self, prompt: Any, trajectory_id: Any = None) -> Any:
            generate = self.inference_engine_client.generate
            (tokens,) = (await generate({"prompt_token_ids": [prompt]}))["response_ids"]
            if judges:
                await generate({"prompt_token_ids": [[9, 9]]})
            ids = tokens if tokens[-1] == 23 else [*tokens, 23]
            return SimpleNamespace(prompt_ids=prompt, response_ids=ids, loss_mask=[1] * len(ids))

    kind = TandemGenerator.tandem_over(OneMessage)
    run = made()
    output, _ = generated(run, generator=kind(inference_engine_client=Scripted(), tandem=run))
    for ids, mask in zip(output["response_ids"], output["loss_masks"], strict=True):
        facts = ids.row.facts
        assert facts.trained_mask.tolist() == trained
        seed, start, stop = facts.segments[0]
        authors = run.rules.default.replay(answer, seed).tolist()
        assert (start, stop) == (0, len(answer))
        assert mask == [int(bit) for bit in authors] + [0] * (len(ids) - len(answer))


@pytest.mark.parametrize("extension", [TandemGenerator, TandemTrainer])
def test_class_without_what_is_extended_is_rejected(extension: type) -> None:
    class Moved:
        pass

    with refused("patched-symbol-changed"):
        extension.tandem_over(Moved)


def admitted(run: SkyRLRun) -> tuple[dict[str, Any], Any]:
    output, uids = generated(run)
    run.take(output, uids)
    return output, converted(output)


def test_admitted_batch_may_be_trained_padded_as_well(made: Any) -> None:
    run = made()
    _, batch = admitted(run)
    run.check_batch(batch)
    batch.metadata = {"uids": ["0"] * 8, "response_length": batch["response_mask"].shape[1]}
    run.check_batch(pad_training_input_batch(batch, 3))


def test_metrics_are_of_what_is_trained(made: Any) -> None:
    """Of two generations of one step, dynamic sampling trains some groups."""
    run = made()
    (first, _), (second, _) = generated(run), generated(run)
    chosen = {name: first[name][2:4] + second[name][:2] for name in first}
    metrics = run.take(chosen, ["1", "1", "0", "0"])
    run.check_batch(converted(chosen))
    bits = [bit for mask in chosen["loss_masks"] for bit in mask]
    written = sum(len(mask) - 2 for mask in chosen["loss_masks"])
    assert metrics["tandem/senior_share"] == pytest.approx(sum(bits) / written)


def test_repeated_group_is_admitted(made: Any) -> None:
    """Dynamic sampling's ``replace`` trains good groups twice."""
    run = made()
    output, _ = generated(run)
    twice = {name: output[name][:2] * 2 for name in output}
    run.take(twice, ["0"] * 4)
    run.check_batch(converted(twice))


def widened(batch: Any) -> None:
    batch["loss_mask"] = batch["response_mask"].float()


def narrowed(batch: Any) -> None:
    batch["loss_mask"][0, int(batch["loss_mask"][0].argmax())] = 0


def swapped(batch: Any) -> None:
    batch["loss_mask"][[0, 1]] = batch["loss_mask"][[1, 0]]


def other_tokens(batch: Any) -> None:
    batch["sequences"][0, -1] += 1


@pytest.mark.parametrize(
    ("spoil", "codes"),
    [
        (widened, ["mask-changed-after-check"]),
        (narrowed, ["mask-changed-after-check"]),
        (swapped, ["mask-changed-after-check"]),
        (other_tokens, ["row-not-checked"]),
    ],
)
def test_changed_batch_is_rejected(made: Any, spoil: Any, codes: list[str]) -> None:
    run = made()
    _, batch = admitted(run)
    spoil(batch)
    with refused(*codes):
        run.check_batch(batch)


def test_tokens_may_be_dropped_where_skyrl_filters_them(made: Any) -> None:
    cfg = made_cfg()
    cfg.trainer.algorithm.zero_variance_filter = True
    run = made(cfg)
    _, batch = admitted(run)
    batch["loss_mask"][:2] = 0
    run.check_batch(batch)
    widened(batch)
    with refused("mask-changed-after-check"):
        run.check_batch(batch)


def test_response_from_elsewhere_is_rejected(made: Any) -> None:
    run = made()
    output, uids = generated(run)
    output["response_ids"][1] = list(output["response_ids"][1])
    with refused("row-without-authorship"):
        run.take(output, uids)


def test_rollouts_are_dumped_with_their_scores(made: Any, tmp_path: Path) -> None:
    run = made(rollouts=str(tmp_path))
    output, uids = generated(run)
    run.take(output, uids)
    rows = [json.loads(one) for one in (tmp_path / "3.jsonl").read_text().splitlines()]
    assert [row["score"] for row in rows] == [0.0, 1.0] * 4
    assert [row["gts"] for row in rows] == ["0", "0", "1", "1", "2", "2", "3", "3"]
    assert [row["response_ids"] for row in rows] == output["response_ids"]
    assert all(row["step"] == 3 for row in rows)


def test_engines_prove_once_and_are_measured(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proven: list[str] = []
    counted = count(1)
    monkeypatch.setattr(
        module,
        "VLLMServer",
        lambda url: SimpleNamespace(
            check=lambda *_: proven.append(url),
            collective_rpc=lambda method: [{"tokens": next(counted)}],
        ),
    )
    run = made(servers=["a", "b"])
    run.prove(are_awake=False)
    run.prove(are_awake=True)
    assert proven == ["a", "b"]
    cfg = made_cfg()
    cfg.trainer.placement.colocate_all = True
    run = made(cfg, servers=["c"])
    run.prove(are_awake=False)  # asleep
    assert proven == ["a", "b"]
    generated(run)
    assert proven == ["a", "b", "c"]


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_what_engines_counted_in_an_evaluation_is_left_out(
    made: Any, is_asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless engines generate for training meanwhile: they count both together."""
    cfg = made_cfg()
    cfg.trainer.fully_async.enabled = is_asynchronous
    run = made(cfg)
    _, batch = admitted(run)
    counts = [{"tandem/a": 1.0, "tandem/b": 1.0}, {"tandem/a": 2.0}]
    monkeypatch.setattr(run, "engine_metrics", lambda counters: counts.pop(0))
    run.forget_validation()
    assert run.check_batch(batch) == (
        {"tandem/a": 1.0, "tandem/b": 1.0} if is_asynchronous else {"tandem/a": 2.0}
    )


class Plain:
    """As SkyRL's trainer, without models."""

    def __init__(self, cfg: Any, folder: Path) -> None:
        self.cfg, self.folder, self.all_metrics, self.global_step = cfg, folder, {}, 2
        self.resumed, self.eval_dataset = 2, ["problem"]
        self.evaluated: list[tuple[str | None, str]] = []

    def save_checkpoints(self) -> str:
        return str(self.folder)

    def save_models(self) -> None: ...

    def load_checkpoints(self) -> tuple[int, str]:
        return self.resumed, str(self.folder)

    async def eval(self, vllm_metrics_scraper: Any = None) -> dict[str, float]:
        self.evaluated.append((self._tandem.answerer, self.cfg.trainer.export_path))
        return {"eval/all/avg_score": float(len(self.evaluated))}

    def convert_to_training_input(self, *_: Any) -> None: ...
    def compute_advantages_and_returns(self, data: Any) -> Any: ...
    def train_critic_and_policy(self, data: Any) -> str:
        return "updated"


@pytest.fixture
def trainer(made: Any, tmp_path: Path) -> Any:
    def make(cfg: Any = None, **settings: Any) -> Any:
        cfg = cfg or made_cfg()
        return TandemTrainer.tandem_over(Plain)(cfg, tmp_path, tandem=made(cfg, **settings))

    return make


@pytest.mark.parametrize("step", [0, 1, 2])
def test_resumed_checkpoint_is_compared_from_the_first_step_on(
    trainer: Any, step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    one = trainer()
    one.resumed = step
    capsys.readouterr()
    assert one.load_checkpoints()[0] == step
    assert ("has no tandem.json" in capsys.readouterr().out) == (step > 0)


@pytest.mark.parametrize("validation", ["senior", "team", "both"])
def test_evaluation_has_a_pass_for_each_who_answers(trainer: Any, validation: str) -> None:
    one = trainer(validation=validation)
    metrics = asyncio.run(one.eval())
    assert metrics.pop("tandem/senior_alone_change", None) == (None if validation == "team" else 0)
    if validation == "both":
        assert one.evaluated == [("senior", "exports/senior"), ("team", "exports/team")]
        assert metrics == {"eval/all/avg_score": 1.0, "team/eval/all/avg_score": 2.0}
    else:
        assert one.evaluated == [(validation, "exports")]
        assert metrics == {"eval/all/avg_score": 1.0}
    assert one.cfg.trainer.export_path == "exports"
