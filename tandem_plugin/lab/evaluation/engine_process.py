"""The generating process: it writes the missing responses of files, and exits with its engine.

This frees the engine's memory for the next pair of models.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tandem_plugin.errors import EngineError, EvaluationError, TandemError
from tandem_plugin.lab.data.problem import prompt_ids
from tandem_plugin.lab.evaluation.generation import (
    TEXT,
    GenerationFile,
    Sampling,
    engine_settings,
    is_complete,
)
from tandem_plugin.lab.rollouts.engine import response_progress, start_engine
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile
from tandem_plugin.seeds import derive_seed

_PR_SET_PDEATHSIG = 1
_BLANK_LINE = "\n\n"
_AUTHORS = ("solo", "junior")
"""The schedules of a turn of the senior, and of one of the junior."""


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
    with ProcessPoolExecutor(1, get_context("spawn"), _enter_process, (os.getpid(),)) as pool:
        try:
            pool.submit(_answer, files, sampling, dict(engine)).result()
        except BrokenProcessPool as error:
            raise EvaluationError("TP858") from error


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
        _write(files, sampling, engine)
    except TandemError as error:
        if error.__cause__ is not None:
            traceback.print_exc()
        raise
    except Exception as error:
        traceback.print_exc()
        raise EngineError("TP854", error_type=type(error).__name__, error=error) from None


def _write(files: Sequence[GenerationFile], sampling: Sampling, engine: Mapping[str, Any]) -> None:
    """Generate the missing responses, writing each when it is finished."""
    first = files[0]
    with ExitStack() as stack:
        opened = [
            stack.enter_context(RolloutFile(file.path, file.settings(sampling, engine)))
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
        self._questions = [file.benchmark.questions() for file in files]
        self._tokenizer = engine.get_tokenizer()
        self._longest = engine.llm_engine.model_config.max_model_len
        self._ids: dict[tuple[int, int], list[int]] = {}

    def request(self, place: _Place) -> tuple[_Place, Any, Any, Any]:
        """(place, prompt, sampling parameters, tandem parameters) of one response."""
        seed, draws = self.seeds(place)
        params = self.sampling.parameters(seed, self.sampling.max_tokens)
        prompt = {"prompt_token_ids": list(self.ids(place))}
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
            ids = prompt_ids(self.question(place)["messages"], self._tokenizer)
            if len(ids) + self.sampling.max_tokens > self._longest:
                raise EvaluationError(
                    "TP855",
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
    handoff = TextHandoff(engine, requests.sampling, most)
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


@dataclass(slots=True)
class _Chain:
    """A response in progress."""

    key: Any
    question: Mapping[str, Any]
    """The messages, and the golds."""
    prompt: str
    seeds: tuple[int, int]
    """Its tandem seed, and the base of its turns' sampling seeds."""
    rounds: int
    text: str = ""
    ids: list[int] = field(default_factory=list)
    """All generated tokens, including dropped ones; differs from ``text`` retokenised."""
    stops: list[int] = field(default_factory=list)
    """Where each turn ends in ``ids``."""
    authorship: list[int] = field(default_factory=list)
    fingerprint: str | None = None

    def take(self, completion: Any, budget: int) -> str | None:
        """Append a turn; returns the reason if the response ends with it, otherwise None."""
        self.text += completion.text
        self.ids += completion.token_ids
        self.authorship += [1 - len(self.stops) % 2] * len(completion.token_ids)
        self.stops.append(len(self.ids))
        self.fingerprint = self.fingerprint or completion.tandem_fingerprint
        if len(self.ids) >= budget or completion.finish_reason == "length":
            return "length"
        if completion.stop_reason != _BLANK_LINE:
            return "stop"
        return "rounds" if len(self.stops) == 2 * self.rounds else None

    def row(self, finish_reason: str, prompt_ids: list[int]) -> dict[str, Any]:
        """The row of the finished response: each turn is a segment of it."""
        starts = [0, *self.stops[:-1]]
        seed = self.seeds[1]
        return {
            "prompt": self.question["messages"],
            "answer": self.question["golds"],
            "response": self.text,
            "finish_reason": finish_reason,
            "prompt_ids": prompt_ids,
            "response_ids": self.ids,
            "authorship": self.authorship,
            "tandem_seed": seed,
            "tandem_fingerprint": self.fingerprint,
            "tandem_schedule": {"schedule": _AUTHORS[0]},
            "tandem_segments": [[seed, *ends] for ends in zip(starts, self.stops, strict=True)],
            "tandem_segment_schedules": [
                {"schedule": _AUTHORS[turn % 2]} for turn in range(len(self.stops))
            ],
        }


class TextHandoff:
    """Handoff by text, as in the paper's release, on one engine with both models.

    In turns, each model writes until its text has a blank line. The rest of the turn's last token
    is dropped, and the whole text is retokenised for the other model. The senior begins. A response
    ends when a model ends it, at its token budget, or after a number of rounds. Source:
    eval/handoff.py of CSSLab/Tandem-RLVR at 7ba85e0f.

    engine: a :class:`TandemLLM`. most: the maximum number of concurrent requests.
    """

    def __init__(self, engine: Any, sampling: Sampling, most: int) -> None:
        self._engine = engine
        self._tokenizer = engine.get_tokenizer()
        self._has_template = bool(getattr(self._tokenizer, "chat_template", None))
        self._longest = int(engine.llm_engine.model_config.max_model_len)
        self._sampling = sampling
        self._most = most
        self._waiting: deque[_Chain] = deque()

    def add(
        self, key: Any, question: Mapping[str, Any], seeds: tuple[int, int], rounds: int
    ) -> None:
        """Add a response, to be yielded under ``key``."""
        turns: Sequence[Mapping[str, str]] = question["messages"]
        if self._has_template:
            prompt = self._tokenizer.apply_chat_template(
                list(turns), tokenize=False, add_generation_prompt=True
            )
        else:
            prompt = _BLANK_LINE.join(turn["content"] for turn in turns)
        self._waiting.append(_Chain(key, question, prompt, seeds, rounds))

    def rows(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """(key, row) of each response when it is finished."""
        for chain, output in self._engine.stream(self, self._most):
            (completion,) = output.outputs
            ended = chain.take(completion, self._sampling.max_tokens)
            if ended is None and len(self._ids(chain.prompt + chain.text)) >= self._longest:
                ended = "length"
            if ended is None:
                self._waiting.appendleft(chain)
            else:
                yield chain.key, chain.row(ended, self._ids(chain.prompt))

    def __iter__(self) -> TextHandoff:
        return self

    def __next__(self) -> tuple[_Chain, Any, Any, Any]:
        """The next turns; empty while all responses are in the engine."""
        if not self._waiting:
            raise StopIteration
        chain = self._waiting.popleft()
        ids = self._ids(chain.prompt + chain.text)
        turn = len(chain.stops)
        left = min(self._sampling.max_tokens - len(chain.ids), self._longest - len(ids))
        seed = derive_seed(chain.seeds[0], "turn", turn)
        stops = {"stop": [_BLANK_LINE], "include_stop_str_in_output": True}
        params = self._sampling.parameters(seed, left, **stops)
        tandem = {"schedule": _AUTHORS[turn % 2], "seed": chain.seeds[1]}
        return chain, {"prompt_token_ids": ids}, params, tandem

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=not self._has_template))
