"""The process that answers: a job on its stdin, responses in files.

Run as ``python -m tandem_plugin.lab.evaluation.engine_process``.

One engine a process, so that its memory is free again when the next pair of models comes. Each
response is written as it is finished.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tandem_plugin.errors import EngineError, EvaluationError, TandemError
from tandem_plugin.lab.data.problem import prompt_ids
from tandem_plugin.lab.evaluation.generation import MARKER, Sampling
from tandem_plugin.lab.evaluation.team_schedule import TEXT, engine_settings, request
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
    """The program: 0 when all is written, 3 with a sentence on stdout, 130 when interrupted."""
    _end_with_parent()
    job = json.load(sys.stdin)
    try:
        answer(job)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except TandemError as error:
        if error.__cause__ is not None:
            traceback.print_exc()
        return _failed(error)
    except Exception as error:
        traceback.print_exc()
        return _failed(EngineError("TP854", error_type=type(error).__name__, error=error))
    return 0


def answer(job: Mapping[str, Any]) -> None:
    """Write what is missing in the job's files."""
    sampling = Sampling(**job["sampling"])
    with ExitStack() as stack:
        files = [
            stack.enter_context(RolloutFile(Path(file["path"]), file["settings"]))
            for file in job["files"]
        ]
        todo = [
            _Place(f, problem, sample)
            for f, file in enumerate(job["files"])
            for problem in range(len(file["questions"]))
            for sample in range(sampling.samples)
            if (problem, sample) not in files[f].done
        ]
        if not todo:
            return
        engine = _engine(job, sampling.max_tokens)
        prompts = _Prompts(engine, job, sampling)
        all_of_them = sum(len(file["questions"]) * sampling.samples for file in job["files"])
        with response_progress(_names(job), all_of_them, all_of_them - len(todo)) as advance:
            for place, row in _rows(engine, prompts, todo, job, sampling):
                files[place.file].append(place.problem, place.sample, row)
                advance(len(row["response_ids"]))


class _Prompts:
    """The requests of a job, and the rows of their responses."""

    def __init__(self, engine: Any, job: Mapping[str, Any], sampling: Sampling) -> None:
        self._files = job["files"]
        self._sampling = sampling
        self._tokenizer = engine.get_tokenizer()
        self._longest = engine.llm_engine.model_config.max_model_len
        self._ids: dict[tuple[int, int], list[int]] = {}

    def request(self, place: _Place) -> tuple[Any, Any, Any]:
        """(prompt, sampling parameters, what is asked of tandem) of one response."""
        from vllm import SamplingParams

        file, sampling = self._files[place.file], self._sampling
        seed, draws = sampling.seeds(file["benchmark"], place.problem, place.sample)
        params = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k or 0,
            max_tokens=sampling.max_tokens,
            seed=seed,
        )
        prompt = {"prompt_token_ids": list(self._prompt_ids(place))}
        team = file["schedule"]
        tandem = None if team is None else {**request(team), "seed": draws}
        return prompt, params, tandem

    def row(self, place: _Place, output: Any) -> dict[str, Any]:
        """What is known of one response."""
        (response,) = output.outputs
        file = self._files[place.file]
        question = file["questions"][place.problem]
        row = {
            "prompt": question["messages"],
            "answer": question["golds"],
            "response": response.text,
            "finish_reason": response.finish_reason,
            "prompt_ids": self._prompt_ids(place),
            "response_ids": list(response.token_ids),
        }
        if file["schedule"] is None:
            return {**row, "tandem_seed": None}
        return {
            **row,
            "authorship": response.authorship.tolist(),
            "tandem_seed": response.tandem_seed,
            "tandem_fingerprint": response.tandem_fingerprint,
            "tandem_schedule": response.tandem_schedule,
        }

    def question(self, place: _Place) -> dict[str, Any]:
        """A problem as it is asked, whose prompt fits the engine."""
        self._prompt_ids(place)
        question: dict[str, Any] = self._files[place.file]["questions"][place.problem]
        return question

    def _prompt_ids(self, place: _Place) -> list[int]:
        key = place.file, place.problem
        if key not in self._ids:
            self._ids[key] = self._tokenized(place)
        return self._ids[key]

    def _tokenized(self, place: _Place) -> list[int]:
        file = self._files[place.file]
        question = file["questions"][place.problem]
        ids = prompt_ids(question["messages"], self._tokenizer)
        if len(ids) + self._sampling.max_tokens > self._longest:
            raise EvaluationError(
                "TP855",
                problem=place.problem,
                benchmark=file["benchmark"],
                tokens=len(ids),
                max_tokens=self._sampling.max_tokens,
                longest=self._longest,
            )
        return ids


def _rows(
    engine: Any,
    prompts: _Prompts,
    todo: list[_Place],
    job: Mapping[str, Any],
    sampling: Sampling,
) -> Iterator[tuple[_Place, dict[str, Any]]]:
    """The rows of responses as they are finished."""
    by_text = [place for place in todo if _is_text(job, place)]
    others = [place for place in todo if not _is_text(job, place)]
    for place, output in _answers(engine, prompts, others, job["junior"] is not None):
        yield place, prompts.row(place, output)
    if by_text:
        handoff = TextHandoff(engine, sampling, _most(engine))
        chains = [
            handoff.chain(
                place,
                prompts.question(place),
                sampling.seeds(job["files"][place.file]["benchmark"], place.problem, place.sample),
                job["files"][place.file]["schedule"]["rounds"],
            )
            for place in by_text
        ]
        yield from handoff.rows(chains)


def _is_text(job: Mapping[str, Any], place: _Place) -> bool:
    schedule = job["files"][place.file]["schedule"]
    return schedule is not None and schedule["schedule"] == TEXT


def _most(engine: Any) -> int:
    """How many requests keep the engine busy."""
    return 2 * int(engine.llm_engine.vllm_config.scheduler_config.max_num_seqs)


def _answers(
    engine: Any, prompts: _Prompts, todo: list[_Place], team: bool
) -> Iterator[tuple[_Place, Any]]:
    """Responses as they are finished; enough requests are in the engine to keep it busy."""
    most = _most(engine)
    requests = ((place, *prompts.request(place)) for place in todo)
    if team:
        yield from engine.stream(requests, most)
        return
    running: dict[str, _Place] = {}
    while True:
        for place, prompt, params, _ in islice(requests, most - len(running)):
            (name,) = engine.enqueue([prompt], params, use_tqdm=False)
            # Outputs carry the number that LLM gives; vLLM appends a random part to it.
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
        teams = [file["schedule"] for file in job["files"]]
        together = {**engine_settings(teams), "junior": job["junior"]}
    return start_engine(job["senior"], job["engine"], together, tokens)


def _names(job: Mapping[str, Any]) -> str:
    return " and ".join(Path(one).name for one in (job["senior"], job["junior"]) if one)


def _failed(error: TandemError) -> int:
    sent = {"text": str(error), "code": error.code, "fields": error.fields}
    print(MARKER + json.dumps({"error": sent}), flush=True)
    return _FAILED


def _end_with_parent() -> None:
    """Ask Linux to end this process with its parent: a killed command leaves no engine behind."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_FAILED)


if __name__ == "__main__":
    sys.exit(main())
