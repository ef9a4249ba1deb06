"""The generating process: it writes the missing responses of files, and exits with its engine.

This frees the engine's memory for the next pair of models.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from itertools import islice
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NamedTuple

from tandem_plugin.errors import EngineError, EvaluationError, TandemError
from tandem_plugin.lab.data.problem import prompt_ids
from tandem_plugin.lab.evaluation.generation import (
    TEXT,
    GenerationFile,
    Sampling,
    check_response,
    engine_settings,
    is_complete,
)
from tandem_plugin.lab.evaluation.text_handoff import TextHandoff
from tandem_plugin.lab.rollouts.engine import report_unused, response_progress, start_engine
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile

_PR_SET_PDEATHSIG = 1


class _Place(NamedTuple):
    file: int
    problem: int
    sample: int


def generate(
    files: Sequence[GenerationFile], sampling: Sampling, engine: Mapping[str, Any]
) -> None:
    """Generate the missing responses of ``files``, which share their models, in a separate process.

    Starts nothing if nothing is missing, and resumes a killed run. The process ends with this one.
    Raises :class:`TandemError` with the error of that process, and KeyboardInterrupt if it was
    interrupted.
    """
    samples = sampling.samples
    complete = [
        is_complete(one.path, one.settings(sampling, engine), len(one.benchmark.problems), samples)
        for one in files
    ]
    if all(complete):
        return
    others = set(active_children())
    with ProcessPoolExecutor(1, get_context("spawn"), _enter_process, (os.getpid(),)) as pool:
        try:
            with _uninterrupted():
                answer = pool.submit(_answer, files, sampling, dict(engine))
            answer.result()
        except BrokenProcessPool as error:
            raise EvaluationError("evaluation-engine-vanished") from error
        except KeyboardInterrupt:
            for process in set(active_children()) - others:
                process.terminate()
            raise


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits: for ever in a process that starts meanwhile, which allows it when it is ready.

    Its imports would end in a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# In the process.


def _enter_process(parent: int) -> None:
    """Leave stdout to the command's result, and let Linux end this process with its parent.

    A killed command leaves no engine behind.
    """
    os.dup2(2, 1)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _answer(files: Sequence[GenerationFile], sampling: Sampling, engine: Mapping[str, Any]) -> None:
    """Generate the missing responses; any error becomes a :class:`TandemError`."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        _write(files, sampling, engine)
    except TandemError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise EngineError(
            "evaluation-engine-failed", error_type=type(error).__name__, error=error
        ) from None


def _write(files: Sequence[GenerationFile], sampling: Sampling, engine: Mapping[str, Any]) -> None:
    """Generate the missing responses, writing each when it is finished."""
    first = files[0]
    with ExitStack() as stack:
        opened = [
            stack.enter_context(
                RolloutFile(file.path, file.settings(sampling, engine), check_response)
            )
            for file in files
        ]
        places = [
            _Place(f, problem, sample)
            for f, file in enumerate(files)
            for problem in range(len(file.benchmark.problems))
            for sample in range(sampling.samples)
        ]
        todo = [one for one in places if (one.problem, one.sample) not in opened[one.file].done]
        together = None
        if first.junior is not None and first.schedule is not None:
            together = {**engine_settings(first.schedule), "junior": first.junior.path}
        started = start_engine(first.senior.path, engine, together, sampling.max_tokens)
        report_unused(started.get_tokenizer(), first.benchmark.template_args)
        requests = _Requests(started, files, sampling)
        models = " and ".join(Path(one.path).name for one in (first.senior, first.junior) if one)
        with response_progress(models, len(places), len(places) - len(todo)) as advance:
            for place, row in _rows(started, requests, todo):
                opened[place.file].append(place.problem, place.sample, row)
                advance(len(row["response_ids"]))


class _Requests:
    """The requests for responses, and the rows of these."""

    def __init__(self, engine: Any, files: Sequence[GenerationFile], sampling: Sampling) -> None:
        self.files = files
        self.sampling = sampling
        self.template_args = files[0].benchmark.template_args
        """The same for all benchmarks of a command."""
        self._questions = [file.benchmark.questions() for file in files]
        self._tokenizer = engine.get_tokenizer()
        self._longest = engine.llm_engine.model_config.max_model_len
        self._ids: dict[tuple[int, int], list[int]] = {}

    def request(self, place: _Place) -> tuple[_Place, Any, Any, Any]:
        """(place, prompt, sampling parameters, tandem parameters) of one response."""
        seed, draws = self.seeds(place)
        ids = self.ids(place)
        params = self.sampling.parameters(seed, self.sampling.budget(len(ids)))
        prompt = {"prompt_token_ids": list(ids)}
        team = self.files[place.file].schedule
        return place, prompt, params, None if team is None else {**team, "seed": draws}

    def row(self, place: _Place, output: Any) -> dict[str, Any]:
        """A file's row of one response."""
        (response,) = output.outputs
        question = self.question(place)
        row = {
            "prompt": question["messages"],
            "answer": question["golds"],
            "response": response.text,
            "finish_reason": response.finish_reason,
            "prompt_ids": self.ids(place),
            "response_ids": list(response.token_ids),
        }
        if self.files[place.file].schedule is None:
            return {**row, "tandem_seed": None}
        return {
            **row,
            "authorship": response.authorship.tolist(),
            "tandem_seed": response.tandem_seed,
            "tandem_fingerprint": response.tandem_fingerprint,
            "tandem_schedule": response.tandem_schedule,
        }

    def question(self, place: _Place) -> dict[str, Any]:
        """The messages and the golds of a problem."""
        return self._questions[place.file][place.problem]

    def seeds(self, place: _Place) -> tuple[int, int]:
        """(sampling seed, tandem seed) of one response."""
        benchmark = self.files[place.file].benchmark.name
        return self.sampling.seeds(benchmark, place.problem, place.sample)

    def ids(self, place: _Place) -> list[int]:
        """The prompt's token ids; raises :class:`EvaluationError` if they do not fit."""
        key = place.file, place.problem
        if key not in self._ids:
            messages = self.question(place)["messages"]
            ids = prompt_ids(messages, self._tokenizer, self.template_args)
            budget = self.sampling.budget(len(ids))
            if budget < 1 or len(ids) + budget > self._longest:
                raise EvaluationError(
                    "evaluation-problem-too-long",
                    problem=place.problem,
                    benchmark=self.files[place.file].benchmark.name,
                    tokens=len(ids),
                    max_tokens=self.sampling.max_tokens,
                    longest=self._longest,
                )
            self._ids[key] = ids
        return self._ids[key]


def _rows(
    engine: Any, requests: _Requests, todo: Sequence[_Place]
) -> Iterator[tuple[_Place, dict[str, Any]]]:
    """The rows of responses as they finish, with enough requests to keep the engine busy."""
    most = 2 * int(engine.llm_engine.vllm_config.scheduler_config.max_num_seqs)
    handoff = TextHandoff(engine, requests.sampling, most, requests.template_args)
    others = []
    for place in todo:
        schedule = requests.files[place.file].schedule or {}
        if schedule.get("schedule") == TEXT:
            requests.ids(place)  # they must fit
            question, seeds = requests.question(place), requests.seeds(place)
            handoff.add(place, question, seeds, schedule["rounds"])
        else:
            others.append(place)
    made = map(requests.request, others)
    team = requests.files[0].junior is not None
    outputs = engine.stream(made, most) if team else _stream(engine, made, most)
    for place, output in outputs:
        yield place, requests.row(place, output)
    if team:
        yield from handoff.rows()


def _stream(
    engine: Any, requests: Iterator[tuple[_Place, Any, Any, Any]], most: int
) -> Iterator[tuple[_Place, Any]]:
    """Like :meth:`TandemLLM.stream`, for an engine of the senior alone."""
    running: dict[str, _Place] = {}
    while True:
        for place, prompt, params, _ in islice(requests, most - len(running)):
            (name,) = engine.enqueue([prompt], params, use_tqdm=False)
            # Outputs have the number that LLM assigns; vLLM appends a random part to it.
            running[name.partition("-")[0]] = place
        if not running:
            return
        for output in engine.llm_engine.step():
            if output.finished:
                yield running.pop(output.request_id), output
