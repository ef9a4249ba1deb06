"""What is its own in OpenRLHF's trajectories: samples of one call, and lengths of responses."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import random
import threading
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_openrlhf.numbering import KeyedLabel
from tandem_openrlhf.rollouts import (
    RolloutActorInTandem,
    SharedCalls,
    TandemExecutor,
    narrowed,
    response_length,
)
from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.grading.rewards import reward_file
from tandem_plugin.seeds import derive_seed, sample_seed
from tandem_plugin.training.authorship_wire import AUTHORSHIP, ResponseAuthorship, bits_of
from tandem_plugin.training.validation import Answerer

PIECES = tuple("Ġ" + chr(97 + i) if i % 3 == 0 else chr(97 + i) for i in range(24))
RULES = TandemRules(TandemConfig.from_mapping({"cap": 4, "seed": 9}), Vocabulary(PIECES, "a test"))
PROMPT = [1, 2, 3]


class Engine:
    """Answers each call with the next samples, numbered as vLLM does."""

    def __init__(self, *answers: dict[int, list[int]]) -> None:
        self.answers = iter(answers)

    async def generate(self, prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
        samples = next(self.answers).items()
        outputs = [SimpleNamespace(index=index, token_ids=ids) for index, ids in samples]
        return SimpleNamespace(outputs=outputs)


class Picture:
    """One of Pillow's, upright unless it says otherwise."""

    mode, info = "RGB", MappingProxyType({})

    def __init__(self, orientation: int = 1) -> None:
        self._orientation = orientation

    def getexif(self) -> dict[int, int]:
        return {0x0112: self._orientation}


class SeeingEngine(Engine):
    """Has read these tokens as the prompt, which should be those that it was sent."""

    def __init__(self, read: list[int]) -> None:
        super().__init__({0: [4, 5]})
        self.read = read

    async def generate(self, prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
        self.shown = multi_modal_data
        output = await super().generate(prompt, params)
        output.prompt_token_ids = self.read
        return output


def test_images_reach_an_engine_that_reads_the_trainers_tokens() -> None:
    def answer(engine: Any, images: bool, *pictures: Any) -> Any:
        trajectory = KeyedLabel("", 0).trajectory(RULES)
        trajectory.images = images
        shared = SharedCalls()
        shared.begin(trajectory)
        actor = RolloutActorInTandem(engine, trajectory, shared)
        params = SimpleNamespace(extra_args=None)
        shown = {"image": list(pictures)} if pictures else None
        return asyncio.run(actor.generate(PROMPT, params, multi_modal_data=shown))

    engine, picture = SeeingEngine(PROMPT), Picture()
    assert answer(engine, True, picture).outputs[0].token_ids == [4, 5]
    assert engine.shown == {"image": [picture]}
    assert answer(SeeingEngine([9]), True).outputs  # no image: nothing is expanded
    with refused("image-prompt-differs", sent=3, read=4):
        answer(SeeingEngine([1, 2, 2, 3]), True, picture)
    with refused("picture-not-upright", orientation=6):
        answer(SeeingEngine(PROMPT), True, picture, Picture(6))
    with refused("prompt-images-off"):
        answer(SeeingEngine(PROMPT), False, picture)


@pytest.mark.parametrize("pixels", [None, {}, {"pixel_values": "of the image"}])
def test_response_with_tokens_of_an_image_needs_its_pixels(pixels: Any) -> None:
    """Also of an agent's later turns; other tokens, and a tokenizer of text, need none."""

    class Agent:
        async def execute(self, *, llm_engine: Any, **_: Any) -> dict[str, Any]:
            prompt = [*PROMPT, 22, 22]
            output = await llm_engine.generate(prompt, SimpleNamespace(extra_args=None))
            ids = output.outputs[0].token_ids
            ranges = [(len(prompt), len(prompt) + len(ids))]
            response = {"observation_tokens": prompt + ids, "action_ranges": ranges}
            return {**response, "rollout_log_probs": None, "mm_train_inputs": pixels}

    def answer(processor: Any) -> Any:
        executor = TandemExecutor(Agent(), RULES.config)
        executor._rules = RULES
        return asyncio.run(
            executor.execute(
                label=KeyedLabel("", 0),
                sampling_params=None,
                hf_tokenizer=processor,
                llm_engine=Engine({0: [4, 5]}),
            )
        )

    for processor in (None, SimpleNamespace(image_token_id=21)):
        assert answer(processor)["observation_tokens"] == [*PROMPT, 22, 22, 4, 5]
    if pixels:
        assert answer(SimpleNamespace(image_token_id=22))["mm_train_inputs"] == pixels
    else:
        with refused("openrlhf-images-unreturned", token_id=22, position=3):
            answer(SimpleNamespace(image_token_id=22))


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_sample_that_the_agent_keeps_of_several_has_its_own_authors(kept: int) -> None:
    """Asked for in calls of their own, or in one call with n above 1; they begin alike."""
    samples = [[4, 5, 6, 7, 8, last] for last in (9, 10, 11)]
    first, own = (derive_seed(9, "training", 0, 0, call) for call in (0, kept))
    for answers, seed in (
        ([{0: one} for one in samples], own),
        ([dict(enumerate(samples))], sample_seed(first, kept)),
        ([{kept: samples[kept]}], sample_seed(first, kept)),  # as vLLM streams them
    ):
        trajectory = KeyedLabel("", 0).trajectory(RULES)
        shared = SharedCalls()
        shared.begin(trajectory)
        engine = RolloutActorInTandem(Engine(*answers), trajectory, shared)
        for _ in answers:
            asyncio.run(engine.generate(PROMPT, SimpleNamespace(extra_args=None)))
        tokens = PROMPT + samples[kept]
        log_probs = [-0.5 - place for place in range(len(tokens))]
        result = narrowed(
            {
                "observation_tokens": tokens,
                "action_ranges": [(3, len(tokens))],
                "rollout_log_probs": log_probs,
            },
            trajectory,
            shared,
        )
        senior = RULES.default.replay(samples[kept], seed).tolist()
        own = [0.0] * 3 + [bit * value for bit, value in zip(senior, log_probs[3:], strict=True)]
        assert result["rollout_log_probs"] == own  # none of the prompt's and the junior's
        assert bits_of(result["action_ranges"], 9)[3:].tolist() == senior
        facts = ResponseAuthorship.from_wire(result[AUTHORSHIP])
        assert facts is not None
        assert facts.segments == ((seed, 3, 9),)


@pytest.mark.parametrize("trained", [((3, 9),), ((3, 5), (7, 12)), ((0, 4),), ()])
@pytest.mark.parametrize("most", [4, 20])
def test_length_is_openrlhfs_own_of_the_whole_mask(
    trained: tuple[tuple[int, int], ...], most: int
) -> None:
    """First to last trained token, the sequence's first token being no action."""
    ones = np.flatnonzero(bits_of(trained, 20)[1:most])
    expected = int(ones[-1] - ones[0] + 1) if ones.size else 0
    assert response_length(bits_of(trained, 20), most) == expected


class LossyTokenizer:
    """Loses every prompt, and says what the response's tokens mean; 7 is a special token."""

    pieces = (" so", " \\boxed ", "391", "<|end|>", "390")

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        import torch

        return {"input_ids": torch.tensor([PROMPT])}

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        kept = (one for one in ids if one > 3 and not (skip_special_tokens and one == 7))
        return "".join(self.pieces[one - 4] for one in kept)


async def answered(executor: Any, label: Any, answer: int = 6) -> Any:
    """What OpenRLHF's own executor, or tandem's around it, makes of one prompt."""
    ids = [4, 5, answer, 7]
    said = SimpleNamespace(index=0, token_ids=ids, finish_reason="stop", logprobs=None)

    class Answering:
        async def generate(self, prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
            await asyncio.sleep(0)
            return SimpleNamespace(outputs=[said])

    return await executor.execute(
        prompt="Like \\boxed{7}. What is 17 * 23?",
        label=label,
        sampling_params=SimpleNamespace(max_tokens=16, logprobs=None, extra_args=None),
        max_length=64,
        hf_tokenizer=LossyTokenizer(),
        llm_engine=Answering(),
    )


def test_reward_in_tandem_knows_the_response_that_decoding_hides() -> None:
    """A run without tandem stops at its first batch: OpenRLHF has no other reward."""
    agent = pytest.importorskip("openrlhf.utils.agent", reason="OpenRLHF is not installed")
    pytest.importorskip("sympy", reason="SymPy is not installed")
    own = agent.SingleTurnAgentExecutor(str(reward_file("openrlhf")))
    executor = TandemExecutor(own, RULES.config)
    executor._rules = RULES

    async def batch(answerer: Answerer) -> Any:
        label = KeyedLabel(["7", "#### 391"], 0, answerer=answerer)
        answers = (answered(executor, label, answer) for answer in (6, 8, 6))
        return await asyncio.gather(*answers)

    answerers: tuple[Answerer, ...] = ("team", "senior")  # who alone answers some validations
    for answerer in answerers:
        responses = asyncio.run(batch(answerer))
        assert [float(one["reward"]) for one in responses] == [1.0, 0.0, 1.0]
        assert [float(one["extra_logs"]["outcome_incorrect"]) for one in responses] == [0, 1, 0]
    alone = agent.SingleTurnAgentExecutor(str(reward_file("openrlhf")))
    assert asyncio.run(answered(alone, "391"))["reward"] is None


def test_batch_without_a_reward_ends_openrlhfs_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openrlhf.utils.agent", reason="OpenRLHF is not installed")
    without = Path(__file__).parents[3] / "adapters/tandem_openrlhf/without_flash_attn"
    monkeypatch.syspath_prepend(str(without))
    from openrlhf.trainer.ppo_utils import experience_maker

    monkeypatch.setattr(experience_maker.ray, "put", lambda value: value)
    samples = SimpleNamespace(
        rewards=None, sequences=[1], attention_mask=[1], action_mask=[1], mm_train_inputs=[]
    )
    settings = SimpleNamespace(ds=SimpleNamespace(ring_attn_size=1, tensor_parallel_size=1))
    maker = object.__new__(experience_maker.RemoteExperienceMaker)
    maker.strategy, maker.reward_model_group = SimpleNamespace(args=settings), None
    with pytest.raises(ValueError, match="reward_model_group is required"):
        maker.make_experience([samples])


class ServingAgent:
    """Serves all prompts by an engine that it keeps, in a thread, a task, or none of its own.

    OpenRLHF's server agent has a thread. renewed: in each prompt, a task begins to serve by the
    first engine for all prompts after it.
    """

    def __init__(self, server: str, renewed: bool = False) -> None:
        self.server, self.renewed = server, renewed
        self.servers: list[Any] = []
        self.engine: Any = None
        self.asked: queue.Queue[Any] = queue.Queue()

    def _serve(self) -> None:
        async def answer(prompt: Any, done: Any) -> None:
            try:
                output = await self.engine.generate(prompt, SimpleNamespace(extra_args=None))
                done.set_result(output)
            except Exception as error:
                if not done.cancelled():
                    done.set_exception(error)

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            tasks = set()
            while (call := await loop.run_in_executor(None, self.asked.get)) is not None:
                tasks.add(loop.create_task(answer(*call)))
            await asyncio.gather(*tasks)

        asyncio.run(serve())

    async def _serve_as_task(self, calls: asyncio.Queue[Any]) -> None:
        tasks = set()
        while True:
            prompt, done = await calls.get()
            call = self.engine.generate(prompt, SimpleNamespace(extra_args=None))
            tasks.add(task := asyncio.create_task(call))
            task.add_done_callback(
                lambda task, done=done: (
                    done.set_exception(task.exception())
                    if task.exception()
                    else done.set_result(task.result())
                )
            )

    async def generate(self, prompt: Any) -> Any:
        if self.server == "none":
            return await self.engine.generate(prompt, SimpleNamespace(extra_args=None))
        if self.server == "task":
            answer = asyncio.get_running_loop().create_future()
            self.calls.put_nowait((prompt, answer))
            return await answer
        done: Any = concurrent.futures.Future()
        self.asked.put((prompt, done))
        return await asyncio.wrap_future(done)

    def start(self) -> None:
        if self.server == "thread":
            threading.Thread(target=self._serve, daemon=True).start()
        if self.server == "task":
            self.calls: asyncio.Queue[Any] = asyncio.Queue()
            self.servers.append(asyncio.create_task(self._serve_as_task(self.calls)))

    async def execute(self, *, prompt: Any, llm_engine: Any, turns: int, **_: Any) -> Any:
        if self.engine is None or self.renewed:
            self.engine = self.engine or llm_engine
            self.start()
        tokens, ranges = list(prompt), []
        for turn in range(turns):
            tokens += [20] * bool(turn)  # feedback
            output = await self.generate(list(tokens))
            ranges.append((len(tokens), len(tokens) + len(output.outputs[0].token_ids)))
            tokens += output.outputs[0].token_ids
        return {"observation_tokens": tokens, "action_ranges": ranges, "rollout_log_probs": None}


class RandomEngine:
    """Answers each call with random tokens; notes the tandem seed that wrote each whole text.

    No two whole texts are equal, or (``same``) all responses are.
    """

    def __init__(self, same: bool = False) -> None:
        self.random = random.Random(5)
        self.same = same
        self.written: dict[tuple[int, ...], list[int]] = {}

    def _response(self, prompt: Any) -> list[int]:
        if self.same:
            return list(range(4, 13))
        while True:
            ids = [self.random.randrange(20) for _ in range(self.random.randint(1, 12))]
            if (*prompt, *ids) not in self.written:
                return ids

    async def generate(self, prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
        await asyncio.sleep(self.random.random() / 100)
        ids = self._response(prompt)
        asked = params.extra_args["tandem"]
        if asked != "off":
            self.written.setdefault((*prompt, *ids), []).append(asked["seed"])
        return SimpleNamespace(outputs=[SimpleNamespace(index=0, token_ids=ids)])


async def served(agent: ServingAgent, engine: Any, labels: list[KeyedLabel], **more: Any) -> Any:
    """The responses of several prompts answered side by side, and then of one more."""
    executor = TandemExecutor(agent, RULES.config)
    executor._rules = RULES

    def execute(label: KeyedLabel) -> Any:
        return executor.execute(
            label=label,
            prompt=[label.prompt % 20, 1, 2],
            sampling_params=None,
            hf_tokenizer=None,
            llm_engine=engine,
            **more,
        )

    try:
        return [*await asyncio.gather(*map(execute, labels[:-1])), await execute(labels[-1])]
    finally:
        agent.asked.put(None)


@pytest.mark.parametrize(
    ("server", "renewed"), [("thread", False), ("none", False), ("task", False), ("task", True)]
)
def test_agent_that_keeps_its_first_engine_has_each_calls_own_authors(
    server: str, renewed: bool
) -> None:
    """Told apart by the tokens, siblings of one prompt and several turns included."""
    engine = RandomEngine()
    labels = [KeyedLabel("", number) for number in range(6)] * 4
    responses = asyncio.run(served(ServingAgent(server, renewed), engine, labels, turns=2))
    seeds = set()
    for response in responses:
        facts = ResponseAuthorship.from_wire(response[AUTHORSHIP])
        assert facts is not None
        assert len(facts.segments) == 2
        assert not facts.unknown
        tokens = response["observation_tokens"]
        for seed, start, stop in facts.segments:
            assert seed in engine.written[tuple(tokens[:stop])]
            own = facts.authorship[start:stop].tolist()
            assert own == RULES.default.replay(tokens[start:stop], seed).tolist()
        seeds |= {seed for seed, _, _ in facts.segments}
    assert len(seeds) == 48


def test_equal_answers_of_such_an_agent_are_of_different_calls() -> None:
    labels = [KeyedLabel("", 0)] * 6
    engine = RandomEngine(same=True)
    responses = asyncio.run(served(ServingAgent("thread"), engine, labels, turns=1))
    every = [ResponseAuthorship.from_wire(one[AUTHORSHIP]) for one in responses]
    seeds = [seed for facts in every if facts for seed, _, _ in facts.segments]
    assert len(set(seeds)) == 6
    assert any(facts.unknown for facts in every if facts)  # while two calls could have written it


def test_server_that_is_a_task_of_the_first_prompt_keeps_no_calls_of_prompts_that_ended() -> None:
    agent, engine = ServingAgent("task"), RandomEngine()
    executor = TandemExecutor(agent, RULES.config)
    executor._rules = RULES

    async def overlapping() -> list[int]:
        """Each prompt ends once the next one has begun, so that one is always running."""
        kept, previous = [], None
        for number in range(12):
            task = asyncio.create_task(
                executor.execute(
                    label=KeyedLabel("", number),
                    prompt=[number, 1, 2],
                    sampling_params=None,
                    hf_tokenizer=None,
                    llm_engine=engine,
                    turns=2,
                )
            )
            await asyncio.sleep(0)
            if previous is not None:
                await previous
            previous = task
            kept.append(len(executor._shared.ended))
        await task
        return [*kept, len(executor._shared.ended)]

    kept = asyncio.run(overlapping())
    assert max(kept) <= 2
    assert kept[-1] == 0


def test_equal_answers_of_prompts_that_await_their_calls_in_tasks_have_their_own_authors() -> None:
    """Each is its own call's, although another prompt's call has the same text."""

    class Drafting(ServingAgent):
        async def generate(self, prompt: Any) -> Any:
            calls = [super(Drafting, self).generate(prompt) for _ in range(2)]
            return (await asyncio.gather(*calls))[1]

        async def execute(self, *, llm_engine: Any, **call: Any) -> Any:
            own = Drafting("none")
            own.engine = llm_engine
            return await ServingAgent.execute(own, llm_engine=llm_engine, **call)

    labels = [KeyedLabel("", 0)] * 6
    responses = asyncio.run(served(Drafting("none"), RandomEngine(same=True), labels, turns=1))
    for sample, response in enumerate(responses):
        facts = ResponseAuthorship.from_wire(response[AUTHORSHIP])
        assert facts is not None
        own = {derive_seed(9, "training", 0, sample, call) for call in range(2)}
        assert facts.segments[0][0] in own


@pytest.mark.parametrize("alone", [0, 1])
def test_server_in_the_task_of_a_prompt_of_another_rule_is_refused(alone: int) -> None:
    """A response of the senior alone that the junior took part in, and the reverse."""
    labels = [KeyedLabel("", number) for number in range(2)]
    labels[alone].answerer = "senior"
    codes = ("openrlhf-response-without-call", "openrlhf-agent-keeps-engine")
    with refused(codes[alone]):
        asyncio.run(served(ServingAgent("task"), RandomEngine(), [*labels, labels[1]], turns=1))


def test_senior_answers_alone_for_such_an_agent_too() -> None:
    labels = [KeyedLabel("", number, answerer="senior") for number in range(5)]
    responses = asyncio.run(served(ServingAgent("thread"), RandomEngine(), labels, turns=1))
    assert not any(AUTHORSHIP in one for one in responses)


def test_call_of_such_an_agent_among_several_rules_is_refused() -> None:
    labels = [KeyedLabel("", 0), KeyedLabel("", 1, answerer="senior")] * 2
    with refused("openrlhf-agent-keeps-engine"):
        asyncio.run(served(ServingAgent("thread"), RandomEngine(), labels, turns=1))


def test_agent_that_changes_its_sampling_changes_no_siblings() -> None:
    """OpenRLHF's own sets the tokens left at each turn; one object serves a prompt's samples."""
    params = SimpleNamespace(max_tokens=9, extra_args={})
    seen: list[Any] = []

    class Changing(ServingAgent):
        async def execute(self, *, sampling_params: Any, **call: Any) -> Any:
            seen.append((sampling_params.max_tokens, dict(sampling_params.extra_args)))
            sampling_params.max_tokens -= 1
            sampling_params.extra_args["own"] = 1
            return await super().execute(**call)

    async def executed() -> None:
        for _ in range(3):
            executor = TandemExecutor(Changing("none"), RULES.config)
            executor._rules = RULES
            await executor.execute(
                label=KeyedLabel("", 0),
                prompt=[1],
                sampling_params=params,
                hf_tokenizer=None,
                llm_engine=RandomEngine(),
                turns=1,
            )

    asyncio.run(executed())
    assert seen == [(9, {})] * 3


def test_response_that_no_call_wrote_is_refused() -> None:
    class Inventing(ServingAgent):
        async def execute(self, **_: Any) -> Any:
            return {"observation_tokens": [1, 2, 3], "action_ranges": [(1, 3)]}

    with refused("openrlhf-response-without-call"):
        asyncio.run(served(Inventing("none"), RandomEngine(), [KeyedLabel("", 0)] * 2))
