"""Checks of what SkyRL generates and trains: each batch at its conversion, and at its update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tandem_plugin.errors import EngineError
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.calls import NarrowedResponse, Response, Trajectory
from tandem_plugin.training.rows import Row
from tandem_plugin.training.run import TandemRun
from tandem_plugin.training.server import VLLMServer
from tandem_plugin.training.validation import Answerer

if TYPE_CHECKING:
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.generators.base import BatchMetadata, GeneratorOutput, TrajectoryID

Key = tuple[str, int]
"""A trajectory of a generation: the numbers of its prompt in the data set and of its sample."""


def key_of(trajectory_id: TrajectoryID) -> Key:
    """The key of a trajectory by SkyRL's own name for it."""
    return str(trajectory_id.instance_id), int(trajectory_id.repetition_id)


class WrittenResponse(list[int]):
    """A response's token ids, with the row as which it is checked.

    SkyRL drops, repeats and concatenates responses between a generation and an update, and leaves
    each as it is.
    """

    def __init__(self, row: Row, gold: Any = None) -> None:
        """gold: the right answer in the prompt's row of the data set, if it has one."""
        super().__init__(row.response_ids.tolist())
        self.row, self.gold = row, gold


@dataclass(frozen=True, slots=True)
class Generation:
    """The trajectories of one ``generate`` of SkyRL's."""

    name: str
    answerer: Answerer | None
    """Who answers a validation; None in training."""
    ids: Sequence[TrajectoryID]
    trajectories: Mapping[Key, Trajectory]
    golds: Mapping[Key, Any] = field(default_factory=dict)
    """The right answers in the rows of the data set, as far as these have one."""

    def narrowed(self, output: GeneratorOutput) -> list[NarrowedResponse]:
        """The responses as SkyRL returns them, one for each turn in step-wise training."""
        keys = [key_of(trajectory_id) for trajectory_id in output.get("trajectory_ids") or self.ids]
        log_probs = output.get("rollout_logprobs") or [None] * len(keys)
        columns = (output["prompt_token_ids"], output["response_ids"], output["loss_masks"])
        responses = [
            Response(*column_values) for column_values in zip(*columns, log_probs, strict=True)
        ]
        numbers: dict[Key, list[int]] = {}
        for number, key in enumerate(keys):
            numbers.setdefault(key, []).append(number)
        narrowed = {
            number: response
            for key, places in numbers.items()
            for number, response in zip(
                places, self.trajectories[key].narrow([responses[n] for n in places]), strict=True
            )
        }
        return [narrowed[number] for number in range(len(keys))]

    def rows(self, output: GeneratorOutput, narrowed: Sequence[NarrowedResponse]) -> list[Row]:
        """The same as rows of a batch."""
        ids = output.get("trajectory_ids") or self.ids
        return [
            response.row(
                f"Response {number} of {self.name} (prompt {trajectory_id.instance_id})",
                str(trajectory_id.instance_id),
            )
            for number, (trajectory_id, response) in enumerate(zip(ids, narrowed, strict=True))
        ]


class Trainer(Protocol):
    """What a run reads of SkyRL's trainer."""

    cfg: Any
    global_step: int
    tokenizer: Any


class SkyRLRun(TandemRun):
    """A run of SkyRL's: its settings and rules, its engines, and the last admitted batch."""

    def __init__(
        self,
        rules: TandemRules,
        cfg: SkyRLTrainConfig,
        servers: Sequence[str],
        model: str,
    ) -> None:
        """servers: the addresses of the engines; model: the name by which they know the senior."""
        super().__init__(rules)
        self.rejects = bool(cfg.trainer.algorithm.zero_variance_filter)
        self.answerer: str | None = None
        """Who answers the running evaluation, if the settings do not say it."""
        self.trainer: Trainer | None = None
        self._start = str(cfg.trainer.policy.model.path)
        self._engines_sleep = bool(cfg.trainer.placement.colocate_all)
        self._is_asynchronous = bool(cfg.trainer.fully_async.enabled)
        self._servers, self._model = [VLLMServer(url) for url in servers], model
        self._is_proven = False
        self._generations: Counter[tuple[str, int]] = Counter()
        self._taken: list[tuple[Sequence[int], Row]] = []
        self._measured: dict[str, float] = {}

    def prove(self, are_awake: bool) -> None:
        """Let each engine prove that it is in tandem, once; raises like :meth:`VLLMServer.check`.

        are_awake: whether engines that share their GPUs with the trainer can answer.
        """
        if self._is_proven or (self._engines_sleep and not are_awake):
            return
        for server in self._servers:
            server.check(self._model, self._start, self.rules)
        self._is_proven = True

    def begin(
        self,
        place: BatchMetadata | None,
        ids: Sequence[TrajectoryID] | None,
        rows: Sequence[Mapping[str, Any]] | None = None,
    ) -> Generation:
        """The trajectories of SkyRL's next generation; rows: of the data set, without prompts.

        In training, a trajectory's seeds follow from the step and the number of the generation in
        it; where SkyRL generates ahead of its steps, from the epoch. So a resumed run repeats them.
        """
        if place is None or ids is None:
            raise EngineError("skyrl-generation-without-place")
        step = int(place.global_step or 0)
        trains = place.training_phase == "train"
        answerer = None if trains else self.config.answerer(self.answerer)
        phase = "training" if trains else f"validation by {answerer}"
        number = self._generations[phase, step]
        self._generations[phase, step] += 1
        where: tuple[int | str, ...] = (step,)
        if trains:
            if self.trainer is None:
                raise EngineError("skyrl-trainer-not-in-tandem")
            where = (step, number)
            if self._is_asynchronous:
                where = ("epoch", int(getattr(self.trainer, "epoch")))  # noqa: B009
        return Generation(
            f"generation {number} of step {step}",
            answerer,
            ids,
            {
                key_of(trajectory_id): Trajectory.at(
                    self.rules, *where, *key_of(trajectory_id), step=step, answerer=answerer
                )
                for trajectory_id in ids
            },
            {
                key_of(trajectory_id): self.gold(row)
                for trajectory_id, row in zip(ids, rows or (), strict=False)
            },
        )

    def finish(self, generation: Generation, output: GeneratorOutput) -> None:
        """Keep the senior's tokens of a generation for training; checks those of a validation.

        Raises like :meth:`Trajectory.narrow` and :meth:`TandemRun.check_validation`.
        """
        narrowed = generation.narrowed(output)
        rows = generation.rows(output, narrowed)
        if generation.answerer is not None:
            self.check_validation(rows, generation.answerer)
            return
        if self._engines_sleep:
            self._measure()
        keys = map(key_of, output.get("trajectory_ids") or generation.ids)
        output["response_ids"] = [
            WrittenResponse(row, generation.golds.get(key))
            for row, key in zip(rows, keys, strict=True)
        ]
        output["loss_masks"] = [response.mask_list for response in narrowed]
        if output.get("rollout_logprobs"):
            output["rollout_logprobs"] = [response.log_probs for response in narrowed]

    def take(self, output: GeneratorOutput, uids: Sequence[str]) -> dict[str, float]:
        """Admit the responses of an update, and return their metrics.

        Raises like :meth:`TandemRun.admit`.
        """
        assert self.trainer is not None
        step, responses = self.trainer.global_step, output["response_ids"]
        rows = [
            getattr(ids, "row", None) or _unknown_row(number, uid, ids)
            for number, (uid, ids) in enumerate(zip(uids, responses, strict=True))
        ]
        metrics = self.admit(rows)
        self._taken = list(zip(output["prompt_token_ids"], rows, strict=True))
        if self.config.rollouts:
            decode = self.trainer.tokenizer.decode
            texts = [
                {
                    "input": decode(prompt),
                    "output": decode(ids),
                    "gts": getattr(ids, "gold", None),
                    "score": float(np.sum(reward)),
                }
                for prompt, ids, reward in zip(
                    output["prompt_token_ids"], responses, output["rewards"], strict=True
                )
            ]
            self.write_rows(step, zip(rows, texts, strict=True))
        return metrics

    def check_batch(self, batch: TrainingInputBatch) -> dict[str, float]:
        """Raise :class:`AuthorshipError` unless an update trains on what was admitted.

        Rows at its end pad it. Returns the metrics of the engines.
        """
        names = ("sequences", "attention_mask", "response_mask", "loss_mask")
        columns = zip(*(batch[name].cpu().numpy() for name in names), strict=True)
        rows = []
        for number, (tokens, is_real, responds, trains) in enumerate(columns):
            name, text = f"Row {number} of the update", tokens[is_real == 1]
            if number < len(self._taken):
                prompt, row = self._taken[number]
                if np.array_equal(text, [*prompt, *row.response_ids]):
                    name = row.name
            response = text[len(text) - int(responds.sum()) :]
            rows.append(Row(name, "", response, trains[responds == 1] > 0))
        self.check_update(rows)
        if not self._engines_sleep:
            self._measure()
        metrics, self._measured = self._measured, {}
        return metrics

    def _measure(self) -> None:
        """Ask the engines for what they counted since the last time."""
        self._measured |= self.engine_metrics(
            lambda method: [server.collective_rpc(method)[0] for server in self._servers]
        )

    def forget_validation(self) -> None:
        """Leave out of a step's metrics what the engines counted in an evaluation."""
        if not self._is_asynchronous:
            self._measure()
            self._measured = {}


def _unknown_row(number: int, uid: str, ids: Sequence[int]) -> Row:
    """A response that comes from elsewhere, which no check admits."""
    response = np.array(ids, np.int64)
    return Row(f"Response {number} of the update (prompt {uid})", uid, response, response >= 0)
