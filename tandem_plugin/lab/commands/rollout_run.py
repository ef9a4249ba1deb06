"""What ``tandem rollout`` asks of the engine, and the rows that it writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_plugin.lab.commands.problems import Asking, answer
from tandem_plugin.lab.rollouts.rollout import SCORES

if TYPE_CHECKING:
    from tandem_plugin.engine.llm import TandemLLM
    from tandem_plugin.grading import Grade, Grader
    from tandem_plugin.lab.data import Problem
    from tandem_plugin.lab.rollouts.rollout_file import RolloutFile

__all__ = ["RolloutRun", "mean_reward", "write_rollouts"]

_DIGITS = 6
"""Of scores, behind the point: as many as float32 has."""


class RolloutRun:
    """The requests of a run, and the rows of its responses."""

    def __init__(
        self,
        llm: TandemLLM,
        problems: Sequence[Problem],
        asking: Asking,
        seed: int,
        sampling: dict[str, Any],
        skipped: dict[int, str],
    ) -> None:
        self.llm = llm
        self.problems = problems
        self._asking = asking
        self._seed = seed
        self._sampling = sampling
        self._tokenizer = llm.get_tokenizer()
        self._skipped = skipped
        """Why problems are left out: their prompts are too long for the model."""

    def requests(self, places: Sequence[tuple[int, int]]) -> Iterator[tuple[Any, Any, Any, Any]]:
        """(place, prompt, sampling parameters, tandem seed) of each response."""
        from vllm import SamplingParams

        from tandem_plugin.seeds import derive_seed

        longest = self.llm.llm_engine.model_config.max_model_len
        for problem, sample in places:
            ids = self._asking.ids(self.problems[problem], self._tokenizer)
            if len(ids) >= longest:
                self._skipped[problem] = (
                    f"Problem {problem} has {len(ids)} tokens, and the model takes {longest} with "
                    "the response: give a larger --engine max_model_len, or leave it out."
                )
                continue
            seed = derive_seed(self._seed, "sampling", problem, sample)
            params = SamplingParams(**self._sampling, seed=seed)
            tandem_seed = derive_seed(self._seed, "rollout", problem, sample)
            yield (problem, sample), {"prompt_token_ids": ids}, params, tandem_seed

    def row(self, problem: int, output: Any) -> dict[str, Any]:
        """What is known of one response."""
        (response,) = output.outputs
        asked = self.problems[problem]
        known = answer(asked)
        return {
            "prompt": self._asking.prompt(asked),
            **({} if known is None else {"answer": known}),
            "response": response.text,
            "finish_reason": response.finish_reason,
            "response_ids": list(response.token_ids),
            "authorship": response.authorship.tolist(),
            "tandem_seed": response.tandem_seed,
            "tandem_fingerprint": response.tandem_fingerprint,
            "tandem_schedule": response.tandem_schedule,
            **_scores(response),
        }


def _scores(response: Any) -> dict[str, list[float]]:
    """The columns of what both models make of each token, where the engine was asked for them."""
    if response.overlaps is None:
        return {}
    columns = response.senior_logprobs, response.junior_logprobs, response.overlaps
    return {
        name: [round(score, _DIGITS) for score in column.tolist()]
        for name, column in zip(SCORES, columns, strict=True)
    }


def write_rollouts(
    run: RolloutRun,
    file: RolloutFile,
    todo: Sequence[tuple[int, int]],
    responses: int,
    grader: Grader | None,
) -> None:
    """Generate what is to do, a line for each finished response, with a progress bar.

    grader: grades each response before its line is written, while the engine goes on. What is
    being graded when the run is stopped is made again by the next one.
    """
    from tandem_plugin.lab.rollouts.progress import response_progress

    most = 2 * run.llm.llm_engine.vllm_config.scheduler_config.max_num_seqs
    with (
        response_progress("rollout", responses, responses - len(todo)) as advance,
        _Lines(file, run.problems, grader) as lines,
    ):
        for (problem, sample), output in run.llm.stream(run.requests(todo), most):
            lines.add(problem, sample, run.row(problem, output))
            advance(len(output.outputs[0].token_ids))


class _Lines:
    """Writes rows, where there is a grader each when its response is graded."""

    def __init__(self, file: RolloutFile, problems: Sequence[Problem], grader: Grader | None):
        self._file = file
        self._problems = problems
        self._grader = grader
        self._waiting: deque[tuple[int, int, dict[str, Any], Future[Grade]]] = deque()

    def add(self, problem: int, sample: int, row: dict[str, Any]) -> None:
        if self._grader is None:
            self._file.append(problem, sample, row)
            return
        grade = self._grader.submit(row["response"], list(self._problems[problem].golds))
        self._waiting.append((problem, sample, row, grade))
        while self._waiting and self._waiting[0][-1].done():
            self._write(*self._waiting.popleft())

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Write what is still being graded; where the run was stopped, leave it to the next one."""
        try:
            while self._waiting and kind is None:
                self._write(*self._waiting.popleft())
        finally:
            for *_, grade in self._waiting:
                grade.cancel()
            if self._grader is not None:
                self._grader.close()

    def _write(
        self, problem: int, sample: int, row: dict[str, Any], grading: Future[Grade]
    ) -> None:
        grade = grading.result()
        graded = {
            "reward": grade.reward,
            "outcome": grade.outcome,
            "pred": grade.answer or "",
            "grading_rule": grade.rule,
        }
        self._file.append(problem, sample, row | graded)


def mean_reward(path: Path, places: set[tuple[int, int]]) -> float | None:
    """Of the responses of a file that are among ``places``; None where there is none.

    Raises :class:`RolloutError` for a line without a reward, which the command did not write.
    """
    from tandem_plugin.files.strict_json import is_number
    from tandem_plugin.lab.rollouts.rollout import RolloutError
    from tandem_plugin.lab.rollouts.rollout_file import placed_rows

    rewards: list[float] = []
    for number, (problem, sample, row) in enumerate(placed_rows(path), 1):
        reward = row.get("reward")
        if not is_number(reward):
            raise RolloutError(
                f"{str(path)!r}, line {number} has no reward: it was not written with --grade. "
                "Give another --out."
            )
        if (problem, sample) in places:
            rewards.append(reward)
    return sum(rewards) / len(rewards) if rewards else None
