"""The rollouts of TRL's ``AsyncGRPOTrainer`` in tandem: pass it :class:`TandemRolloutWorker`.

The worker's child process (:class:`TandemLoop`) generates: each conversation is a trajectory, and
each of its turns a call. The trainer's process takes each sample from a :class:`CheckedQueue`,
which replays it. Nothing of TRL is patched: TRL documents the worker's protocol, and its own
workers subclass the loop as this module does.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import queue
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import aiohttp
import numpy as np
from numpy.typing import NDArray
from trl.experimental.async_grpo.async_rollout_worker import (
    AsyncRolloutWorker,
    RolloutSample,
    TrainingSequence,
    _AsyncRolloutLoop,
)

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import AuthorshipError, ConfigError, EngineError
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.calls import Response, Trajectory
from tandem_plugin.training.rows import Row
from tandem_plugin.training.run import TandemRun
from tandem_plugin.training.server import VLLMServer
from tandem_trl.checkpoints import NotedCheckpoints
from tandem_trl.start import AsyncSettings

logger = logging.getLogger(__name__)

_trajectory: contextvars.ContextVar[Trajectory | None] = contextvars.ContextVar("trajectory")
"""The trajectory of the running task's conversation."""

_request: contextvars.ContextVar[Mapping[str, Any] | str] = contextvars.ContextVar("request")
"""Of the turn that is running: one call, however often TRL repeats it."""


@dataclass
class TandemSequence(TrainingSequence):  # type: ignore[misc]
    """A row of a conversation, with the length of its first prompt and its authorship data."""

    tandem: tuple[int, Mapping[str, Any]] | None = None


@dataclass(slots=True)
class TandemSample(RolloutSample):  # type: ignore[misc]
    """The same once it is scored."""

    tandem: tuple[int, Mapping[str, Any]] | None = None
    gold: Any = None
    """The right answer in the prompt's row of the data set, if it has one."""


class TandemLoop(_AsyncRolloutLoop):  # type: ignore[misc]
    """In the child process: TRL's loop, which keeps the senior's tokens alone for training."""

    def __init__(
        self, *, tandem: Mapping[str, Any], dataset_start_index: int = 0, **options: Any
    ) -> None:
        """tandem: the run's settings. dataset_start_index: the first prompt of a resumed run."""
        super().__init__(dataset_start_index=dataset_start_index, **options)
        config = TandemConfig.from_mapping(tandem)
        self._rules = TandemRules.from_tokenizer(config, self.tokenizer)
        self._first = dataset_start_index
        self._begun = Counter[int]()

    async def _generate_one(
        self, prompt: Any, tool_dict: Any, tools: Any, group_id: int = 0
    ) -> tuple[Any, ...]:
        """TRL's conversation; its number is counted over all prompts of a run and its resumptions.

        TRL trains nothing of rows that have no token to train, and fails if a batch has no other.
        """
        sample, self._begun[group_id] = self._begun[group_id], self._begun[group_id] + 1
        trajectory = Trajectory.at(
            self._rules, self._first + group_id, sample, step=self.model_version
        )
        _trajectory.set(trajectory)
        messages, ids, sequences, *figures = await super()._generate_one(
            prompt, tool_dict, tools, group_id
        )
        rows = narrowed(trajectory, sequences)
        return (
            messages,
            ids,
            [sequence for sequence in rows if any(sequence.completion_mask)],
            *figures,
        )

    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        trajectory = _trajectory.get(None)
        if trajectory is None:
            raise EngineError("trl-turn-without-row")
        call = trajectory.call(prompt_ids)
        _request.set(call.request)
        token_ids, log_probs = await super()._generate_one_turn(prompt_ids)
        call.returned(token_ids)
        return token_ids, log_probs

    async def _post(
        self, path: str, payload: dict[str, Any], timeout: float, max_retries: int = 3
    ) -> Any:
        """TRL's request, with the call's own; one that the server rejects is not repeated."""
        body = {**payload, "vllm_xargs": VLLMServer.xargs(_request.get())}
        try:
            return await super()._post(path, body, timeout, max_retries)
        except aiohttp.ClientResponseError as error:
            if error.status not in (400, 404):  # TRL repeats it; 404: an adapter that is not there
                raise
            _, answer = VLLMServer(self.vllm_server_url).send(path, body)
            raise EngineError(
                "server-request-rejected", url=self.vllm_server_url, answer=answer
            ) from error

    async def _score_group(self, group: Any) -> list[TandemSample]:
        samples = await super()._score_group(group)
        sequences = chain.from_iterable(group.completions_sequences)
        names = [field.name for field in fields(RolloutSample)]
        gold = TandemRun.gold({name: column[0] for name, column in group.reward_kwargs.items()})
        return [
            TandemSample(
                *(getattr(sample, name) for name in names), tandem=sequence.tandem, gold=gold
            )
            for sample, sequence in zip(samples, sequences, strict=True)
        ]


def narrowed(trajectory: Trajectory, sequences: Sequence[TrainingSequence]) -> list[TandemSequence]:
    """The rows of a conversation, each training on the senior's tokens alone.

    TRL trains a turn in one row at most: where a turn's tokens are not those of the conversation's
    text, that part becomes context, or a new row begins. Raises like
    :func:`~tandem_plugin.training.response_authorship.author_response`.
    """
    prompts = [_prompt_length(trajectory, np.array(row.input_ids)) for row in sequences]
    responses = [
        Response(
            row.input_ids[:prompt],
            row.input_ids[prompt:],
            row.completion_mask[prompt:],
            row.old_log_probs[prompt:],
        )
        for row, prompt in zip(sequences, prompts, strict=True)
    ]
    return [
        TandemSequence(
            row.input_ids,
            [0] * prompt + response.mask_list,
            [0.0] * prompt + list(response.log_probs or ()),
            row.rollout_id,
            (prompt, response.columns),
        )
        for row, prompt, response in zip(
            sequences, prompts, trajectory.narrow(responses), strict=True
        )
    ]


def _prompt_length(trajectory: Trajectory, tokens: NDArray[np.int64]) -> int:
    """The length of the shortest prompt among the calls with which a row begins."""
    prompts = (call.prompt_ids for call in trajectory.calls)
    return min((len(p) for p in prompts if np.array_equal(tokens[: len(p)], p)), default=0)


class CheckedQueue:
    """In the trainer's process: every sample is replayed before the trainer sees it."""

    def __init__(self, worker: TandemRolloutWorker) -> None:
        self._worker = worker

    def get(self, *args: Any, **options: Any) -> Any:
        """As of the worker's own queue; raises like :meth:`TandemRun.admit_row`."""
        sample = self._worker.own_queue.get(*args, **options)
        self._worker.admit(sample)
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker.own_queue, name)


class TandemRolloutWorker(AsyncRolloutWorker):  # type: ignore[misc]
    """TRL's rollout worker in tandem, for ``AsyncGRPOTrainer(rollout_worker=...)``."""

    _loop_cls = TandemLoop
    _process: Any  # TRL's child; None before it starts
    _callback: NotedCheckpoints | None = None

    def __init__(
        self,
        args: Any,
        *,
        tandem: Mapping[str, Any],
        model_name: str,
        processing_class: Any,
        **options: Any,
    ) -> None:
        """args: the trainer's ``AsyncGRPOConfig``. tandem: :class:`TandemConfig`'s settings.

        model_name: the trainer's model, by which the server knows it. options: of TRL's
        ``AsyncRolloutWorker``, such as ``dataset``, ``reward_funcs`` and ``tools``, which override
        ``args``; a run with an adapter names it: ``lora_name="trl-policy"``. Raises
        :class:`ConfigError` for invalid settings.
        """
        config = TandemConfig.from_mapping(tandem)
        self._start = AsyncSettings.begin(config)
        if not issubclass(type(self)._loop_cls, TandemLoop):
            raise ConfigError("trl-worker-without-tandem", loop=type(self)._loop_cls.__name__)
        options = {**_of_config(args), **options}
        self._names_ends = "eos_token_ids" in options
        self._ends_of_model: tuple[int, ...] = ()
        options.setdefault("eos_token_ids", [processing_class.eos_token_id])
        sampled = {n: options[n] for n in ("top_k", "top_p", "min_p", "repetition_penalty")}
        self._settings = AsyncSettings.of(args, options, model_name, sampled=sampled)
        self._start.check(self._settings)
        super().__init__(
            tandem=dict(tandem), model_name=model_name, processing_class=processing_class, **options
        )
        self._model, self._decode = model_name, processing_class.decode
        self._server = VLLMServer(options["vllm_server_url"])
        self._run = TandemRun.start(TandemRules.from_tokenizer(config, processing_class))
        self._batch = _rows_of_update(args)
        self._written: list[tuple[Row, dict[str, Any]]] = []
        self.own_queue: Any = self.rollout_buffer
        self.rollout_buffer: Any = CheckedQueue(self)

    def start(self) -> None:
        """Prove the server, then start the child; raises like :meth:`VLLMServer.check`.

        Raises :class:`ConfigError` if the trainer does not have the worker's callback, which checks
        where a training begins and notes its settings.
        """
        if self._callback is None or not self._callback.has_begun:
            raise ConfigError("trl-worker-without-callback")
        self._server.check(self._model, self._model, self._run.rules)
        if not self._names_ends:
            ends = self._run.ends_of_engines(self._of_server)
            end_ids = (*self._loop_kwargs["eos_token_ids"], *self._ends_of_model, *sorted(ends))
            self._loop_kwargs["eos_token_ids"] = list(dict.fromkeys(end_ids))
        checked, self.rollout_buffer = self.rollout_buffer, self.own_queue
        try:
            super().start()
        finally:
            self.rollout_buffer = checked

    def callback(self) -> NotedCheckpoints:
        """For the trainer's ``callbacks``, without which the worker does not start.

        It checks the model that is trained and where a training begins; checkpoints then say how
        they were made.
        """
        self._callback = NotedCheckpoints(self._run, self._model, self._check_begin)
        return self._callback

    def _check_begin(self, model: Any, resumes: bool) -> None:
        self._start.check(self._settings.with_model(model, resumes=resumes))
        self._ends_of_model = _ends_of(model)

    def update_model_version(self, model_version: int) -> None:
        """Also report what the server measured, and write what the last version was trained on."""
        self._write()
        super().update_model_version(model_version)
        if self._process is not None:  # the server has proved what it is
            try:
                self._report(self._run.engine_metrics(self._of_server))
            except EngineError as error:  # of figures alone: every sample is checked as it comes
                logger.warning("This sync's measures of the engine are missing: %s", error)

    def stop(self) -> None:
        """Also write what was trained on last. A child that is dead already is not told to stop.

        TRL sets an event on which the child waited, and Python's event then waits for that waiter.
        """
        self._write()
        process = self._process
        if process is not None and process.exitcode is not None:
            self._process = None
            return
        super().stop()

    def _of_server(self, method: str) -> list[Any]:
        return self._server.collective_rpc(method)[:1]

    def admit(self, sample: TandemSample) -> None:
        """Check a sample that the trainer takes, and report who wrote it.

        Its arrays become read-only: nothing may change between this check and the loss.
        """
        prompt, columns = getattr(sample, "tandem", None) or (0, {})
        mask = sample.completion_mask == 1
        row = Row.received(
            f"A response to prompt {sample.group_id}",
            f"prompt {sample.group_id}",
            sample.input_ids[prompt:],
            mask[prompt:],
            columns,
        )
        if row.facts is None:
            raise AuthorshipError("trl-sample-without-authorship")
        if mask[:prompt].any():
            raise AuthorshipError(
                "trained-tokens-without-call",
                row=row.name,
                count=int(mask[:prompt].sum()),
                position=int(mask.argmax()) - prompt,
            )
        metrics: dict[str, Any] = self._run.admit_row(row, self._batch)
        written = sum(stop - start for _, start, stop in row.facts.segments)
        share = metrics["tandem/senior_share"]
        self._report({**metrics, "tandem/senior_share": (share * written, written)})
        for array in (sample.input_ids, sample.completion_mask, sample.old_log_probs):
            array.setflags(write=False)
        if self._run.config.rollouts:
            text = {"input": self._decode(sample.input_ids[:prompt])}
            text["output"] = self._decode(row.response_ids)
            gold = getattr(sample, "gold", None)
            score = sample.metrics["reward"]
            self._written.append((row, {**text, "gts": gold, "score": score}))

    def _report(self, metrics: Mapping[str, Any]) -> None:
        """Metrics for the trainer's log; a pair is the sum of a mean and its weight."""
        with contextlib.suppress(queue.Full):  # as TRL's own worker
            self.metrics_queue.put_nowait(dict(metrics))

    def _write(self) -> None:
        """Write what the trainer took since the last sync, under the step that trains on it."""
        if self._written:
            self._run.write_rows(self.model_version, self._written)
            self._written = []


def _ends_of(model: Any) -> tuple[int, ...]:
    """The ids at which a model's own configuration ends a response, as TRL's trainer reads them."""
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return (ends,) if isinstance(ends, int) else tuple(ends or ())


_OF_CONFIG = {
    "vllm_server_url": "vllm_server_base_url",
    "max_tokens": "max_completion_length",
    **{
        name: name
        for name in (
            *("num_generations", "queue_maxsize", "temperature", "top_p", "top_k", "min_p"),
            *("repetition_penalty", "request_timeout", "chat_template_kwargs"),
            *("max_tool_calling_iterations", "log_completions", "num_completions_to_print"),
            "fork_threshold_tokens",
        )
    },
}
"""The worker's arguments that ``AsyncGRPOTrainer`` takes from its own, by their names there."""


def _of_config(args: Any) -> dict[str, Any]:
    """The arguments with which ``AsyncGRPOTrainer`` would create its own worker."""
    tasks = args.max_inflight_tasks
    if tasks < 0:  # as the trainer infers it
        tasks = max(args.max_staleness, 1) * _rows_of_update(args)
    options = {name: getattr(args, attribute) for name, attribute in _OF_CONFIG.items()}
    return {**options, "max_inflight_tasks": tasks}


def _rows_of_update(args: Any) -> int:
    """The samples of one update, over all processes."""
    samples = args.per_device_train_batch_size * args.gradient_accumulation_steps
    return int(samples * args.world_size)
