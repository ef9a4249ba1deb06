"""Generation: what engines are asked for, prompts' numbers, what responses say, evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from tandem_openrlhf.executor import TandemExecutor
from tandem_openrlhf.presence import check_parts, confirm_at_start
from tandem_openrlhf.sample_keys import Numbering, keyed
from tandem_openrlhf.trajectory import FACTS
from tandem_plugin.patching.subclasses import Patch, in_place_of
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.command import running_config
from tandem_plugin.training.validation import TEAM, answerers

__all__ = ["ANSWERER", "PATCHES", "named_metrics", "place_prompts"]

ANSWERER = "tandem_answerer"
"""The attribute of an evaluated experience that says who answered."""


@in_place_of("RolloutRayActor", confirm_at_start)
def run_engines_in_tandem(original: Any) -> type:
    """Ask every engine for tandem, and send each trajectory of its agent executor out in tandem.

    Touches: ``RolloutRayActor``, which hands its keywords to vLLM's ``AsyncEngineArgs`` and holds
    the executor, the user's or its own. Why: OpenRLHF passes no other engine arguments on, and an
    executor that ``--train.agent_func_path`` names has no place for the user's, since that argument
    turns the reward model off. Goes when: OpenRLHF passes engine arguments on, lets plugins wrap
    executors, and calls the engine's workers with their answer.
    """

    class Engine(original):  # type: ignore[misc]
        executor: Any

        async def __init__(  # type: ignore[misc]  # Ray awaits it
            self, *args: Any, additional_config: Any = None, **arguments: Any
        ) -> None:
            config = running_config()
            additional = {**(additional_config or {}), "tandem": config.settings()}
            await super().__init__(*args, additional_config=additional, **arguments)
            self.executor = TandemExecutor(self.executor, config)

        async def tandem_draft_stats(self) -> dict[str, int]:
            """What became of the engine's drafts, in the speculative mode."""
            from tandem_plugin.engine.names import TELL_OF_DRAFTS

            workers = await self.llm.collective_rpc(TELL_OF_DRAFTS)
            return dict(workers[0])

    return Engine


@in_place_of("SamplesGenerator")
def place_prompts(original: Any) -> type:
    """Number prompts on their way to the engines; keep what their responses say about authorship.

    Touches: ``SamplesGenerator``: ``_dispatch_prompts_to_vllm`` (in which the engines' handles are
    replaced), ``generate_eval_samples`` (which alone knows that it validates) and
    ``_process_response_into_experience``. Why: seeds must be unique and the same in every run, and
    OpenRLHF numbers no prompts; an experience has no field for a plugin, and OpenRLHF takes the
    response's length from its mask. Goes when: OpenRLHF does the first two and measures lengths
    without the mask.
    """

    class Generator(original):  # type: ignore[misc]
        vllm_engines: Any

        def __init__(self, *rest: Any, **more: Any) -> None:
            super().__init__(*rest, **more)
            self.numbering = Numbering()

        def _dispatch_prompts_to_vllm(self, prompts: Any, *rest: Any, **more: Any) -> Any:
            engines = self.vllm_engines
            self.vllm_engines = keyed(engines, self.numbering.take(len(prompts)))
            try:
                return super()._dispatch_prompts_to_vllm(prompts, *rest, **more)
            finally:
                self.vllm_engines = engines

        def generate_eval_samples(self, **more: Any) -> Any:
            samples = []
            for answerer in answerers(running_config().validation):
                with self.numbering.validation(answerer):
                    answered = super().generate_eval_samples(**more)
                for sample in answered:
                    setattr(sample, ANSWERER, answerer)
                samples += answered
            return samples

        def _process_response_into_experience(self, response: Any, **more: Any) -> Any:
            import torch

            experience = super()._process_response_into_experience(response, **more)
            facts = response.get(FACTS)
            if facts is not None:
                setattr(experience, FACTS, facts)
                length = facts.response_length(experience.sequences.shape[1])
                experience.response_length = torch.tensor([length])
            return experience

    return Generator


@in_place_of("GenerateSamplesActor", confirm_at_start)
def number_prompts_of_resumed_generators(original: Any) -> type:
    """Go on numbering where the checkpoint of an asynchronous run ended.

    Touches: ``GenerateSamplesActor.fit``. Why: only there does a generator learn how many prompts
    were consumed before. Goes when: OpenRLHF numbers prompts.
    """

    class GeneratingActor(original):  # type: ignore[misc]
        def __init__(self, *rest: Any, **more: Any) -> None:
            super().__init__(*rest, **more)
            check_parts(self.samples_generator)

        def fit(self, episode: int, total_consumed_prompts: int) -> None:
            self.samples_generator.numbering.next_prompt = int(total_consumed_prompts)
            super().fit(episode, total_consumed_prompts)

    return GeneratingActor


def name_the_teams_evaluation(module: ModuleType) -> None:
    """Log what the team solved under names of its own.

    Touches: ``compute_eval_metrics``, before the asynchronous trainer takes it from here. Why:
    OpenRLHF names what it evaluates after the data set alone. Goes when: OpenRLHF lets plugins
    evaluate.
    """

    def compute(
        original: Callable[..., Any], loader: Any, samples: Any, *rest: Any, **more: Any
    ) -> Any:
        return named_metrics(lambda answered: original(loader, answered, *rest, **more), samples)

    wrap_once(module, "compute_eval_metrics", compute)


def named_metrics(
    compute: Callable[[Sequence[Any]], Mapping[str, float]], samples: Sequence[Any]
) -> dict[str, float]:
    """The metrics of an evaluation, each answerer's under names of its own.

    compute: OpenRLHF's metrics of some samples. samples: experiences with :data:`ANSWERER`.
    """
    metrics: dict[str, float] = {}
    for answerer, prefix in (("senior", ""), ("team", TEAM)):
        answered = [sample for sample in samples if getattr(sample, ANSWERER) == answerer]
        for name, value in (compute(answered) if answered else {}).items():
            metrics[prefix + name] = value
    return metrics


PATCHES: tuple[tuple[str, Patch], ...] = (
    ("openrlhf.trainer.ray.vllm_engine", run_engines_in_tandem),
    ("openrlhf.trainer.ppo_utils.samples_generator", place_prompts),
    ("openrlhf.trainer.ppo_trainer", name_the_teams_evaluation),
    ("openrlhf.trainer.ppo_trainer_async", number_prompts_of_resumed_generators),
)
