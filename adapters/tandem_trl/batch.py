"""Checks that every batch of TRL's matches the run: at its rollout, and again at its loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem_plugin.rules import TandemRules
from tandem_plugin.training.calls import NarrowedResponse, Response, Trajectory
from tandem_plugin.training.rows import Row
from tandem_plugin.training.run import TandemRun
from tandem_plugin.training.validation import Answerer
from tandem_trl.engine import Engine
from tandem_trl.loss import AdmittedTexts, Inputs

if TYPE_CHECKING:
    from trl import GRPOTrainer

Ids = Sequence[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """The prompts of one generation; its rows are counted over all processes."""

    step: int
    """The step as numbered in TRL's log; in training, the step that is generated for."""
    answerer: Answerer | None
    """Of validation prompts; None in training."""
    group_size: int
    first: int
    """The first row of this process."""
    trajectories: Sequence[Trajectory]
    """Those of this process's rows."""

    def narrow(self, responses: Sequence[Response]) -> list[NarrowedResponse]:
        """The responses to this process's prompts, each with the senior's tokens alone to train."""
        return [
            narrowed
            for trajectory, response in zip(self.trajectories, responses, strict=True)
            for narrowed in trajectory.narrow([response])
        ]

    def row(self, number: int, narrowed: NarrowedResponse) -> Row:
        """One of them as a row; number: in this process."""
        group = (self.first + number) // self.group_size
        name = f"Response {self.first + number} of step {self.step} (prompt {group})"
        return narrowed.row(name, f"prompt {group}")


class TRLRun(TandemRun):
    """A run of TRL's: its settings and rules, the last admitted batch, and its engine."""

    def __init__(self, rules: TandemRules, trainer: GRPOTrainer, engine: Engine | None) -> None:
        """trainer: TRL's; engine: None in processes that do not talk to the server."""
        super().__init__(rules)
        self.rejects = bool(trainer.mask_truncated_completions)
        self._engine = engine
        self._trainer = trainer
        self._generations: Counter[tuple[str, int]] = Counter()
        self._texts = AdmittedTexts()
        self._to_dump: tuple[int, list[tuple[Ids, Row]]] | None = None
        self._dumped: tuple[int, list[Any]] = (0, [])
        self._of_data: list[dict[str, Any]] = []
        """What a dump has of each row of the data set: the right answer, and small images."""
        writes = trainer.accelerator.is_main_process
        self.validations = self.log_in(self.config.rollouts, writes=writes)
        self._first_pass = self._pass = self.validations.passes(self.config.validation)[0]

    def begin_batch(self, prompts: int) -> Batch:
        """The next generation's place in the run and its trajectories; prompts: of this process."""
        trainer = self._trainer
        trains = trainer.model.training
        step = trainer.state.global_step + trains
        phase = "training" if trains else "validation"
        answerer = None if trains else self._pass.answerer
        generation = self._generations[phase, step]
        self._generations[phase, step] += 1
        first = trainer.accelerator.process_index * prompts
        return Batch(
            step,
            answerer,
            trainer.num_generations if trains else trainer.num_generations_eval,
            first,
            [
                Trajectory.at(self.rules, step, generation, row, step=step, answerer=answerer)
                for row in range(first, first + prompts)
            ],
        )

    def take(self, batch: Batch, prompt_ids: Sequence[Ids], rows_here: Sequence[Row]) -> None:
        """Check a batch, over all processes, and log the team's metrics.

        Raises like :meth:`TandemRun.admit`, in every process alike.
        """
        from accelerate.utils import gather_object

        responses: list[tuple[Ids, Row]] = gather_object(
            list(zip(prompt_ids, rows_here, strict=True))
        )
        rows = [row for _, row in responses]
        if batch.answerer is not None:
            self.check_validation(rows, batch.answerer)
            self.engine_metrics(self._of_engines)  # these counts do not belong to the next step
            return
        metrics = self.admit(rows) | self.engine_metrics(self._of_engines)
        for name, value in metrics.items():
            self._trainer._metrics["train"][name].append(value)
        self._texts = AdmittedTexts(responses)
        self._to_dump = (batch.step, responses)

    def keep_golds(
        self, calculate: Callable[..., Any], inputs: Sequence[Mapping[str, Any]], *arguments: Any
    ) -> Any:
        """TRL's rewards of a generation; keeps what a dump has of its rows, of all processes.

        Touches: ``_calculate_rewards`` of one ``GRPOTrainer`` or ``RLOOTrainer`` (TRL 1.16). Goes
        when: TRL passes the rows of its data set to a rollout function.
        """
        from accelerate.utils import gather_object

        if self.config.rollouts:
            self._of_data = gather_object(self.data_columns(inputs))
        return calculate(inputs, *arguments)

    def log_validation(
        self, log: Callable[..., Any], logs: dict[str, float], *arguments: Any, **options: Any
    ) -> Any:
        """TRL's log; of an evaluation, with how it compares, and followed by the next who answers.

        Several evaluation sets are logged one by one, and not compared; nor is a stream. Touches:
        ``log``, ``_metrics`` and ``callback_handler`` of one ``GRPOTrainer`` or ``RLOOTrainer``
        (TRL 1.16). Goes when: TRL passes its callbacks the rewards of an evaluation before it logs
        them, and lets plugins evaluate.
        """
        of_evaluation = self._trainer._metrics["eval"]
        is_evaluation, is_first = bool(of_evaluation.get("reward")), self._pass == self._first_pass
        if is_evaluation:
            metrics = self._compared(fmean(of_evaluation["reward"]))
            if not is_first:
                for name in [*of_evaluation]:
                    of_evaluation[f"{self._pass.answerer}/{name}"] = of_evaluation.pop(name)
            for name, value in metrics.items():
                of_evaluation[name].append(value)
        result = log(logs, *arguments, **options)
        if is_evaluation and is_first:
            self._evaluate_others(logs)
        return result

    def _compared(self, accuracy: float) -> dict[str, float]:
        """The metrics of how an evaluation of the one evaluation set compares."""
        problems = self._trainer.eval_dataset
        if not isinstance(problems, Sized) or isinstance(problems, Mapping):
            return {}
        step = self._trainer.state.global_step
        return self._pass.add(accuracy, len(problems), step)

    def _evaluate_others(self, logs: Mapping[str, float]) -> None:
        """Evaluate the same set again by the others who answer; logs: of the first evaluation."""
        from accelerate.utils import gather_object

        trainer = self._trainer
        _, *further = self.validations.passes(self.config.validation)
        answerers = gather_object([[validation.answerer for validation in further]])[0]
        ending = "_runtime"
        prefix = next((name.removesuffix(ending) for name in logs if name.endswith(ending)), "eval")
        for answerer in answerers:  # those of the process that writes the file
            problems = trainer.callback_handler.eval_dataloader.dataset
            self._pass = replace(self._first_pass, answerer=answerer)
            try:
                trainer.evaluate(
                    problems if isinstance(problems, Sized) else None,
                    metric_key_prefix=f"{prefix}_{answerer}",
                )
            finally:
                self._pass = self._first_pass

    def engine_ends(self) -> set[int]:
        """The junior's token ids that end a response besides the senior's."""
        return self.ends_of_engines(self._of_engines)

    def _of_engines(self, method: str) -> Sequence[Any]:
        """What the first worker of each engine returns, in every process."""
        from accelerate.utils import gather_object

        result = [] if self._engine is None else [self._engine.collective_rpc(method)[0]]
        every: list[Any] = gather_object(result)
        return every[:: self._trainer.vllm_generation.tensor_parallel_size]

    def check_loss(self, inputs: Inputs) -> None:
        """Raise :class:`AuthorshipError` unless a loss's masks are those that were admitted."""
        names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
        prompts, is_prompt, completions, is_completion = (inputs[n].cpu().numpy() for n in names)
        masks = is_completion
        if "tool_mask" in inputs:
            masks = masks * inputs["tool_mask"].cpu().numpy()
        rows = []
        for i, length in enumerate(is_completion.sum(1)):
            prompt = prompts[i][is_prompt[i] == 1]
            mask = masks[i][:length] == 1
            rows.append(self._texts.row(prompt, completions[i][:length], mask))
        self.check_update(rows)
        self._dump()

    def _dump(self) -> None:
        """Write the last admitted batch, once, with TRL's rewards."""
        if self._to_dump is None:
            return
        (step, responses), self._to_dump = self._to_dump, None
        if not self.config.rollouts or not self._trainer.accelerator.is_main_process:
            return
        decode = self._trainer.processing_class.decode
        written = [] if self._dumped[0] != step else self._dumped[1]
        scores = self._scores()[-len(responses) :]  # TRL keeps the rewards of one generation
        is_known = len(self._of_data) == len(responses)
        of_data = self._of_data if is_known else [{"gts": None}] * len(responses)
        for (prompt, row), score, fields in zip(responses, scores, of_data, strict=True):
            text = {"input": decode(prompt), "output": decode(row.response_ids)}
            written.append((row, {**text, **fields, "score": score}))
        self._dumped = (step, written)
        self.write_rows(step, written)

    def _scores(self) -> list[float | None]:
        """The weighted sum of each response's rewards, over all processes; None without any."""
        logged = self._trainer._logs["rewards"]
        columns = [list(logged[name]) for name in self._trainer.reward_func_names]
        rewards = np.array(columns, np.float64).T * self._trainer.reward_weights.tolist()
        return [None if np.isnan(row).all() else float(np.nansum(row)) for row in rewards]
