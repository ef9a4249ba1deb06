"""The generating process: a job on its stdin, responses in files.

It exits with its engine, which frees the memory for the next pair of models.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tandem_plugin.errors import EngineError, EvaluationError, TandemError
from tandem_plugin.lab.data.problem import prompt_ids
from tandem_plugin.lab.evaluation.generation import (
    MARKER,
    TEXT,
    Sampling,
    engine_settings,
)
from tandem_plugin.lab.evaluation.text_handoff import TextHandoff
from tandem_plugin.lab.rollouts.engine import response_progress, start_engine
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile

__all__ = ["answer", "main"]

_FAILED, _INTERRUPTED = 3, 130
_PR_SET_PDEATHSIG = 1


class _Place(NamedTuple):
    file: int
    problem: int
    sample: int


def main() -> int:
    """The program: exit code 0 when done, 3 with an error on stdout, 130 if interrupted."""
    _end_with_parent()
    job = json.load(sys.stdin)
    try:
        answer(job)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        if not isinstance(error, TandemError) or error.__cause__ is not None:
            traceback.print_exc()
        if not isinstance(error, TandemError):
            error = EngineError("TP854", error_type=type(error).__name__, error=error)
        sent = {"text": str(error), "code": error.code, "fields": error.fields}
        print(MARKER + json.dumps(sent), flush=True)
        return _FAILED
    return 0


def answer(job: Mapping[str, Any]) -> None:
    """Generate the missing responses of the job's files, writing each when it is finished."""
    sampling = Sampling(**job["sampling"])
    with ExitStack() as stack:
        files = [
            stack.enter_context(RolloutFile(Path(file["path"]), file["settings"]))
            for file in job["files"]
        ]
        places = [
            _Place(f, problem, sample)
            for f, file in enumerate(job["files"])
            for problem in range(len(file["questions"]))
            for sample in range(sampling.samples)
        ]
        todo = [one for one in places if (one.problem, one.sample) not in files[one.file].done]
        if not todo:
            return
        engine = _engine(job, sampling.max_tokens)
        prompts = _Prompts(engine, job, sampling)
        models = " and ".join(Path(one).name for one in (job["senior"], job["junior"]) if one)
        with response_progress(models, len(places), len(places) - len(todo)) as advance:
            for place, row in _rows(engine, prompts, todo, job["junior"] is not None):
                files[place.file].append(place.problem, place.sample, row)
                advance(len(row["response_ids"]))


class _Prompts:
    """The requests of a job, and the rows of their responses."""

    def __init__(self, engine: Any, job: Mapping[str, Any], sampling: Sampling) -> None:
        self._files = job["files"]
        self._tokenizer = engine.get_tokenizer()
        self._longest = engine.llm_engine.model_config.max_model_len
        self._ids: dict[tuple[int, int], list[int]] = {}
        self.sampling = sampling

    def request(self, place: _Place) -> tuple[Any, Any, Any]:
        """(prompt, sampling parameters, tandem parameters) of one response."""
        seed, draws = self.seeds(place)
        params = self.sampling.parameters(seed, self.sampling.max_tokens)
        prompt = {"prompt_token_ids": list(self.ids(place))}
        team = self.schedule(place)
        tandem = None if team is None else {**team, "seed": draws}
        return prompt, params, tandem

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
        if self.schedule(place) is None:
            return {**row, "tandem_seed": None}
        return {
            **row,
            "authorship": response.authorship.tolist(),
            "tandem_seed": response.tandem_seed,
            "tandem_fingerprint": response.tandem_fingerprint,
            "tandem_schedule": response.tandem_schedule,
        }

    def question(self, place: _Place) -> Mapping[str, Any]:
        """The messages and the golds of a problem."""
        question: Mapping[str, Any] = self._files[place.file]["questions"][place.problem]
        return question

    def schedule(self, place: _Place) -> Mapping[str, Any] | None:
        """The team's schedule; None for the senior alone."""
        schedule: Mapping[str, Any] | None = self._files[place.file]["schedule"]
        return schedule

    def seeds(self, place: _Place) -> tuple[int, int]:
        """(sampling seed, tandem seed) of one response."""
        benchmark = self._files[place.file]["benchmark"]
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
                    benchmark=self._files[place.file]["benchmark"],
                    tokens=len(ids),
                    max_tokens=self.sampling.max_tokens,
                    longest=self._longest,
                )
            self._ids[key] = ids
        return self._ids[key]


def _rows(
    engine: Any, prompts: _Prompts, todo: Sequence[_Place], team: bool
) -> Iterator[tuple[_Place, dict[str, Any]]]:
    """The rows of responses as they finish, with enough requests to keep the engine busy."""
    most = 2 * int(engine.llm_engine.vllm_config.scheduler_config.max_num_seqs)
    handoff = TextHandoff(engine, prompts.sampling, most)
    others = []
    for place in todo:
        schedule = prompts.schedule(place) or {}
        if schedule.get("schedule") == TEXT:
            prompts.ids(place)  # they must fit
            question, seeds = prompts.question(place), prompts.seeds(place)
            handoff.add(place, question, seeds, schedule["rounds"])
        else:
            others.append(place)
    requests = ((place, *prompts.request(place)) for place in others)
    outputs = engine.stream(requests, most) if team else _stream(engine, requests, most)
    for place, output in outputs:
        yield place, prompts.row(place, output)
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


def _engine(job: Mapping[str, Any], tokens: int) -> Any:
    """The senior alone, or senior and junior."""
    together = None
    if job["junior"] is not None:
        together = {**engine_settings(job["files"][0]["schedule"]), "junior": job["junior"]}
    return start_engine(job["senior"], job["engine"], together, tokens)


def _end_with_parent() -> None:
    """Let Linux end this process with its parent, so a killed command leaves no engine behind."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_FAILED)


if __name__ == "__main__":
    sys.exit(main())
