"""Generation: engine settings, prompt numbers, authorship of responses, evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tandem_openrlhf.batch import received, row_of_sample
from tandem_openrlhf.numbering import Numbering
from tandem_openrlhf.rollouts import TandemExecutor, response_length
from tandem_plugin.patching.subclasses import Mixin
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.command import running_config
from tandem_plugin.training.rows import Row
from tandem_plugin.training.run import TandemRun

if TYPE_CHECKING:
    from openrlhf.trainer.ppo_utils.experience import Experience
    from torch.utils.data import DataLoader


ANSWERER = "tandem_answerer"
"""The attribute of an evaluated sample: the pass it belongs to, and the step after which it was."""


class Engine(Mixin):
    """Starts every engine in tandem, and runs each trajectory of its agent executor in tandem.

    Touches: ``RolloutRayActor``, which holds the executor. Why: OpenRLHF passes no engine arguments
    on, and ``--train.agent_func_path`` is the user's. Goes when: OpenRLHF passes engine arguments
    on, lets plugins wrap executors, and returns the answers of the engine's workers.
    """

    executor: Any

    async def __init__(  # type: ignore[misc]  # Ray awaits it
        self, *args: Any, additional_config: Mapping[str, Any] | None = None, **arguments: Any
    ) -> None:
        config = running_config()
        additional = {**(additional_config or {}), "tandem": config.settings()}
        await super().__init__(*args, additional_config=additional, **arguments)
        self.executor = TandemExecutor(self.executor, config)

    async def tandem_counters(self, method: str) -> dict[str, Any]:
        """The counters that a worker of the engine reports."""
        workers = await self.llm.collective_rpc(method)
        return workers[0]  # type: ignore[no-any-return]


class Generator(Mixin):
    """Numbers prompts on their way to the engines; keeps the authorship of responses.

    Touches: ``SamplesGenerator``: ``_dispatch_prompts_to_vllm``, ``generate_eval_samples`` and
    ``_process_response_into_experience``. Why: OpenRLHF numbers no prompts, has no field for a
    plugin's data, and takes a response's length from its mask. Goes when: it does all three.
    """

    tokenizer: Any

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.numbering = Numbering()

    def _dispatch_prompts_to_vllm(
        self, prompts: Sequence[str], labels: Sequence[Any], **options: Any
    ) -> Any:
        return super()._dispatch_prompts_to_vllm(prompts, self.numbering.keyed(labels), **options)

    def generate_eval_samples(self, **options: Any) -> Any:
        training, samples = self.numbering, []
        try:
            for validation in self._tandem.validations.passes(running_config().validation):
                answerer = validation.answerer
                self.numbering = training.validating(answerer)
                answered = super().generate_eval_samples(**options)
                rows = [
                    row_of_sample(sample, f"Response {number} of the validation", "")
                    for number, sample in enumerate(answered)
                ]
                self._tandem.check_validation(rows, answerer)
                for sample in answered:
                    setattr(sample, ANSWERER, (validation, self.numbering.step))
                samples += answered
        finally:
            self.numbering = training
        return samples

    @cached_property
    def _tandem(self) -> TandemRun:
        return TandemRun(TandemRules.from_tokenizer(running_config(), self.tokenizer))

    def _process_response_into_experience(
        self, response: dict[str, Any], **options: Any
    ) -> Experience:
        import torch

        experience = super()._process_response_into_experience(response, **options)
        for name in Row.COLUMNS & response.keys():
            setattr(experience, name, response[name])
        facts = received(experience, "A response", "").facts
        if facts is not None:
            length = response_length(facts.trained_mask, experience.sequences.shape[1])
            experience.response_length = torch.tensor([length])
        return experience


class ResumedGenerator(Mixin):
    """Resumes numbering at the checkpoint of an asynchronous run.

    Touches: ``GenerateSamplesActor.fit``, which gets the number of prompts consumed. Goes when:
    OpenRLHF numbers prompts.
    """

    def fit(self, episode: int, total_consumed_prompts: int) -> None:
        Generator.tandem_check(self.samples_generator)
        self.samples_generator.numbering.next_prompt = int(total_consumed_prompts)
        super().fit(episode, total_consumed_prompts)


def named_metrics(
    original: Callable[..., Any],
    loader: DataLoader[Any],
    samples: Sequence[Experience],
    *arguments: Any,
    **options: Any,
) -> dict[str, float]:
    """The metrics of an evaluation by each who answered, under separate names.

    Touches: ``compute_eval_metrics``, which names evaluations only by their data set. Goes when:
    OpenRLHF lets plugins evaluate.
    """
    metrics: dict[str, float] = {}
    answered = [getattr(sample, ANSWERER) for sample in samples]
    for validation, step in dict.fromkeys(answered):
        its = [
            sample for sample, by in zip(samples, answered, strict=True) if by == (validation, step)
        ]
        metrics |= validation.named(original(loader, its, *arguments, **options))
        accuracy = fmean(float(sample.rewards[0]) for sample in its)
        problems = len({str(sample.prompts[0]) for sample in its})
        metrics |= validation.add(accuracy, problems, step)
    return metrics
