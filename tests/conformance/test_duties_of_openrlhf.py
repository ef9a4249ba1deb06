"""OpenRLHF's actors and trainer, held to the duties of an adapter: agents of two turns."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

# OpenRLHF imports flash_attn, which needs a GPU to be built: the stand-in, where there is none.
sys.path.append(str(Path(__file__).parents[2] / "adapters/tandem_openrlhf/without_flash_attn"))

from held_to_the_duties import (  # noqa: E402
    FEEDBACK,
    MODEL,
    PROMPTS,
    SAMPLES,
    SETTINGS,
    HeldToTheDuties,
    Written,
)
from refused import refused  # noqa: E402

from tandem_openrlhf.patches.generation import (  # noqa: E402
    Engine,
    Generator,
    named_metrics,
)
from tandem_openrlhf.patches.loss import ImitatingTrainer, Imitation  # noqa: E402
from tandem_openrlhf.patches.training import Maker, SynchronousTrainer  # noqa: E402
from tandem_plugin.engine import runners  # noqa: E402
from tandem_plugin.training.command import VARIABLE  # noqa: E402


class Agent:
    """An ``AgentExecutorBase`` of the user's."""

    async def execute(self, *, prompt: Any, label: Any, llm_engine: Any, **call: Any) -> Any:
        params = call["sampling_params"]
        tokens, ranges = list(prompt), []
        for feedback in (FEEDBACK, []):
            output = await llm_engine.generate(tokens, params)
            answer = output.outputs[0].token_ids
            ranges.append((len(tokens), len(tokens) + len(answer)))
            tokens = [*tokens, *answer, *feedback]
        assert params.extra_args == {"mine": 1}
        log_probs = [0.0] * len(prompt) + [-1.0] * (len(tokens) - len(prompt))
        return {
            "prompt": "a prompt",
            "label": label,
            "observation_tokens": tokens,
            "action_ranges": ranges,
            "rollout_log_probs": log_probs,
            "reward": 1.0,
            "scores": 1.0,
        }


class Actor:
    """``RolloutRayActor``: an engine with an agent's executor."""

    async def __init__(self, driver: TestOpenRLHF, **arguments: Any) -> None:  # type: ignore[misc]
        self.driver, driver.options, self.executor = driver, arguments, Agent()
        model_config = SimpleNamespace(architectures=["Qwen3ForCausalLM"])
        config = SimpleNamespace(model_config=model_config)

        async def collective_rpc(what: str) -> list[Any]:
            return [driver.engine.counters(what)]

        self.llm = SimpleNamespace(vllm_config=config, collective_rpc=collective_rpc)

    async def generate(self, prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
        await asyncio.sleep(0)
        tokens = self.driver.engine.answer(prompt, params.extra_args)
        return SimpleNamespace(outputs=[SimpleNamespace(index=0, token_ids=tokens)])


class Samples:
    """``SamplesGenerator``, with the responses of every prompt at once."""

    def __init__(self, driver: TestOpenRLHF) -> None:
        self.driver, self.tokenizer = driver, None

    def _dispatch_prompts_to_vllm(self, prompts: Any, labels: Any, *, samples: int) -> list[Any]:
        engine = self.driver.actor

        async def every() -> list[Any]:
            return await asyncio.gather(
                *(
                    engine.executor.execute(
                        prompt=prompt,
                        label=label,
                        sampling_params=SimpleNamespace(extra_args={"mine": 1}),
                        hf_tokenizer=None,
                        llm_engine=engine,
                    )
                    for prompt, label in zip(prompts, labels, strict=True)
                    for _ in range(samples)
                )
            )

        return asyncio.run(every())

    def generated(self, samples: int) -> list[Any]:
        """As ``_generate_vllm``."""
        prompts = [[1, 2, prompt] for prompt in range(PROMPTS)]
        responses = self._dispatch_prompts_to_vllm(prompts, ["7"] * PROMPTS, samples=samples)
        return [self._process_response_into_experience(r, max_len=64) for r in responses]

    def generate_eval_samples(self) -> list[Any]:
        return self.generated(1)

    def _process_response_into_experience(self, response: Any, **options: Any) -> Any:
        from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

        return SamplesGenerator._process_response_into_experience(None, response, **options)


class Experiences:
    """``RemoteExperienceMaker``, which batches two samples each and has no models."""

    def __init__(self, args: Any) -> None:
        self.args, self.tokenizer, self.is_changed = args, SimpleNamespace(pad_token_id=0), False

    def make_experience_batch(self, samples: Any) -> list[Any]:
        from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

        for sample in samples:
            delattr(sample, "tandem")
        batches: list[Any] = RemoteExperienceMaker.split_rollout_samples(self, samples)
        if self.is_changed:
            batches[-1].action_mask[-1, 4] ^= 1
        return batches

    def get_advantages_and_returns(self, *_: Any) -> Any: ...


class Trainer:
    """``PPOTrainer`` without models."""

    def __init__(self, driver: TestOpenRLHF, model: str) -> None:
        self.args = driver.args(model)
        self.vllm_engines, self.tokenizer = [driver.handle], SimpleNamespace(decode=self.text)
        self.experience_maker = Maker.tandem_over(Experiences)(self.args)
        self.samples_generator = Generator.tandem_over(Samples)(driver)
        self.step = driver.step
        self.is_resumed = self.step > 1

    def text(self, ids: Any, skip_special_tokens: bool) -> str:
        return str(ids)

    def init_checkpoint_states(self) -> dict[str, int]:
        done = self.step - 1
        return {"total_consumed_prompts": done * PROMPTS, "global_step": done}

    def fit(self, global_step: int = 0) -> None: ...

    def evaluate(self) -> dict[str, float]:
        samples = self.samples_generator.generate_eval_samples()
        for sample in samples:
            sample.rewards = torch.tensor([self.samples_generator.driver.accuracy])
        return named_metrics(lambda *_: {"eval_a_pass1": 1.0}, None, samples)

    def train_step(self, samples: Any) -> tuple[dict[str, float], int]:
        self.step += 1
        return {}, self.step - 1

    def save_logs_and_checkpoints(self, global_step: int) -> None:
        """As DeepSpeed does, and the senior's export."""
        place, tag = Path(self.args.ckpt.path), f"global_step{global_step}"
        for folder in (place / "_actor" / tag, place / f"{tag}_hf"):
            folder.mkdir(parents=True)
        (place / "_actor" / "latest").write_text(tag)

    def save_best_checkpoint(self, metrics: Any, global_step: int) -> None: ...


class TestOpenRLHF(HeldToTheDuties):
    term_missing = "openrlhf-imitation-term-missing"

    def begin(self, step: int = 1, model: str = MODEL, **tandem: Any) -> None:
        self.patched.setattr(runners, "check_engine", lambda _: None)
        self.make({**SETTINGS, **tandem}, step, model)
        self.states = self.trainer.init_checkpoint_states()

    def make(self, tandem: Mapping[str, Any], step: int, model: str) -> None:
        """The parts of a run, as its processes make them."""
        self.patched.setenv(VARIABLE, json.dumps(tandem))
        self.patched.setattr("ray.get", lambda values: values)
        self.step = step
        kind = Engine.tandem_over(Actor)
        self.actor = object.__new__(kind)
        asyncio.run(kind.__init__(self.actor, self))
        remote = lambda what: asyncio.run(self.actor.tandem_counters(what))  # noqa: E731
        self.handle = SimpleNamespace(tandem_counters=SimpleNamespace(remote=remote))
        self.trainer = SynchronousTrainer.tandem_over(Trainer)(self, model)

    def args(self, model: str) -> Any:
        """The arguments that the adapter and the batches read."""
        return SimpleNamespace(
            ckpt=SimpleNamespace(path=str(self.folder), output_dir=str(self.folder / "last")),
            actor=SimpleNamespace(model_name_or_path=model),
            rollout=SimpleNamespace(n_samples_per_prompt=SAMPLES, micro_batch_size=2),
            train=SimpleNamespace(dynamic_batch_enable=False),
        )

    def generate(self) -> list[Written]:
        self.samples = self.trainer.samples_generator.generated(SAMPLES)
        written = []
        for sample in self.samples:
            ids, mask = sample.sequences[0].tolist(), sample.action_mask[0].tolist()
            log_probs = sample.rollout_log_probs[0].tolist()
            assert mask[:2] == log_probs[:2] == [0, 0]
            written.append(Written(ids[:3], ids[3:], mask[2:], log_probs[2:]))
        return written

    def admit(self) -> None:
        """With what follows: OpenRLHF makes experiences of the samples at once."""
        self.experiences = self.trainer.experience_maker.make_experience_batch(self.samples)

    def update(self, *, is_changed: bool = False) -> None:
        self.trainer.train_step(self.samples)

    def test_update(self) -> None:
        """The check follows the batches' making, which OpenRLHF sends to its actors."""
        self.begin()
        self.train()
        self.generate()
        self.trainer.experience_maker.is_changed = True
        with refused("mask-changed-after-check"):
            self.admit()

    def metrics(self) -> Mapping[str, Any]:
        info = self.experiences[0].info
        return {name: float(value[0]) for name, value in info.items() if len(value)}

    def dumped(self) -> list[Mapping[str, Any]]:
        lines = (self.folder / "rollouts" / "1.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def validate(self) -> Mapping[str, Any]:
        metrics: Mapping[str, Any] = self.trainer.evaluate()
        return metrics

    def update_without_term(self) -> None:
        class Step:
            actor, strategy = SimpleNamespace(forward=None), SimpleNamespace(backward=None)

            def training_step(self, experience: Any, kl_ctl: float, step: int) -> Any:
                return {"metrics": {}, "weights": {}}

        imitation = Imitation(0.1, mask=None, tokens=4, ranks=1)
        self.patched.setattr(ImitatingTrainer, "_tandem_imitation", lambda *_: imitation)
        ImitatingTrainer.tandem_over(Step)().training_step(self.experiences[0], 0.0, 0)

    def save(self) -> list[Path]:
        self.trainer.save_logs_and_checkpoints(1)
        self.trainer.fit()
        tag = "global_step1"
        return [self.folder / "_actor" / tag, self.folder / f"{tag}_hf", self.folder / "last"]

    def resume(self, model: str = MODEL, **tandem: Any) -> None:
        self.begin(2, model, **tandem)

    def engine_settings(self) -> Mapping[str, Any]:
        self.begin()
        settings: Mapping[str, Any] = self.options["additional_config"]["tandem"]
        return settings

    def meet_foreign_part(self) -> None:
        foreign = Trainer.__init__

        def init(trainer: Trainer, *arguments: Any) -> None:
            foreign(trainer, *arguments)
            trainer.experience_maker = Experiences(trainer.args)

        self.patched.setattr(Trainer, "__init__", init)
        self.begin()

    def meet_plain_engine(self) -> None:
        self.make(SETTINGS, 1, MODEL)
        self.trainer.init_checkpoint_states()
        self.generate()
