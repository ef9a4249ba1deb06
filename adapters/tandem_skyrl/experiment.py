"""SkyRL's experiment in tandem: what creates the generator and the trainer of a run."""

from __future__ import annotations

from typing import Any

import ray
import skyrl_gym
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.utils import initialize_ray

from tandem_plugin.errors import EngineError
from tandem_plugin.rules import TandemRules
from tandem_skyrl.batch import SkyRLRun
from tandem_skyrl.rollouts import TandemGenerator
from tandem_skyrl.settings import settings_of
from tandem_skyrl.trainer import TandemTrainer

MATH = "tandem_math"
"""The environment that grades as tandem's rewards do: :mod:`tandem_skyrl.environment`."""


class MathExp(BasePPOExp):  # type: ignore[misc]
    """SkyRL's own experiment, with the environment ``tandem_math``."""

    def __init__(self, cfg: Any) -> None:
        """cfg: SkyRL's settings."""
        super().__init__(cfg)
        if MATH not in skyrl_gym.registry:
            special_tokens = {"special_tokens": special_tokens_of(self.tokenizer)}
            skyrl_gym.register(
                id=MATH, entry_point="tandem_skyrl.environment:MathEnv", kwargs=special_tokens
            )


class TandemExp(MathExp):
    """The base class for experiments of one's own, which name their generator and trainer."""

    generator_class: type = SkyRLGymGenerator
    """A class that is created like SkyRL's; its ``generate`` calls ``agent_loop``."""
    trainer_class: type | None = None
    """None: SkyRL's synchronous or fully asynchronous trainer, as the settings say."""
    tandem: SkyRLRun | None = None

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
        """The generator, in tandem; raises for engines that are not.

        Raises :class:`EngineError` like :meth:`~tandem_plugin.training.server.VLLMServer.check`.
        """
        model = resolve_policy_model_name(cfg)
        self.tandem = SkyRLRun.start(
            TandemRules.from_tokenizer(settings_of(cfg), tokenizer),
            *(cfg, inference_engine_client.server_urls, model),
        )
        self.tandem.prove(are_awake=False)
        return TandemGenerator.tandem_over(self.generator_class)(
            generator_cfg=cfg.generator,
            skyrl_gym_cfg=cfg.environment.skyrl_gym,
            inference_engine_client=inference_engine_client,
            tokenizer=tokenizer,
            policy_model_name=model,
            tandem=self.tandem,
        )

    def get_trainer(self, **arguments: Any) -> Any:
        """The trainer, in tandem."""
        if self.tandem is None:
            raise EngineError("skyrl-hook-moved", name="BasePPOExp.get_generator")
        is_asynchronous = arguments["cfg"].trainer.fully_async.enabled
        trainer = FullyAsyncRayPPOTrainer if is_asynchronous else RayPPOTrainer
        kind = TandemTrainer.tandem_over(self.trainer_class or trainer)
        return kind(**arguments, tandem=self.tandem)


def special_tokens_of(tokenizer: Any) -> list[str]:
    """The texts that a Hugging Face tokenizer leaves out with ``skip_special_tokens``.

    They are more than its ``all_special_tokens``, such as the ends of Llama 3's messages.
    """
    added = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return sorted({*tokenizer.all_special_tokens, *added})


def run_experiment(experiment: type[BasePPOExp], cfg: Any) -> None:
    """Run an experiment as SkyRL's command does: in a task of Ray's. cfg: SkyRL's settings."""
    validate_cfg(cfg)
    initialize_ray(cfg)

    @ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
    def run(kind: type[BasePPOExp]) -> None:
        kind(cfg).run()

    ray.get(run.remote(experiment))
