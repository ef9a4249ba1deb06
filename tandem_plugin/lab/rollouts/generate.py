"""One way to generate files of responses: what is asked, by which engine, and the row of an answer.

A command describes each of its files as a :class:`ResponseSet`. :func:`missing` lists the
responses that the files lack, a :class:`Generator` yields their rows as the engine finishes them,
and :func:`write_rows` appends these, graded if the command grades.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tandem_plugin.errors import DataError
from tandem_plugin.lab.data.pictures import Picture, thumbnail
from tandem_plugin.lab.data.problem import Message, prompt_ids
from tandem_plugin.lab.rollouts.engine import response_progress
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile

if TYPE_CHECKING:
    from tandem_plugin.engine.llm import RequestOutput, SamplingParams, TandemLLM
    from tandem_plugin.grading import Grade, Grader

Row: TypeAlias = dict[str, Any]
Seeds: TypeAlias = tuple[int, int]
"""(sampling seed, tandem seed) of one response."""


class Place(NamedTuple):
    """The place of a response: its file, its problem in the file, and its sample."""

    file: int
    problem: int
    sample: int


@dataclass(frozen=True, slots=True)
class Question:
    """A problem as it is asked."""

    turns: Sequence[Message]
    fields: Mapping[str, Any]
    """Its fields in a row: the prompt, and the answer if it is known."""
    golds: Sequence[str]
    images: Sequence[Picture] = ()
    """In the order of their places in the turns."""


@dataclass(frozen=True, slots=True)
class ResponseSet:
    """What one file of responses contains."""

    name: str
    """Of its problems, in messages."""
    questions: Sequence[Question]
    samples: int
    """Responses to each question."""
    seeds: Callable[[int, int], Seeds]
    """The seeds of a response, by problem and sample."""
    schedule: Mapping[str, Any] | None
    """The requests' schedule and its parameters: empty for the engine's own, None for the senior
    alone."""
    has_prompt_ids: bool = False
    """Whether its rows contain the prompts' token ids."""

    @property
    def most_images(self) -> int:
        """Of a question."""
        return max((len(question.images) for question in self.questions), default=0)


def thumbnails(images: Sequence[Picture]) -> dict[str, list[str]]:
    """The field of a row from which ``tandem view`` shows its images; empty without any."""
    return {"images": [thumbnail(picture.content) for picture in images]} if images else {}


def sampling_parameters(seed: int | None, **settings: Any) -> SamplingParams:
    """vLLM's sampling parameters of one request; seed: None for one without its own."""
    from tandem_plugin.engine.llm import SamplingParams

    return SamplingParams(**settings, seed=seed)


def missing(sets: Sequence[ResponseSet], files: Sequence[RolloutFile]) -> list[Place]:
    """The responses that the files of these sets lack, in order."""
    return [
        Place(number, problem, sample)
        for number, (question_set, file) in enumerate(zip(sets, files, strict=True))
        for problem in range(len(question_set.questions))
        for sample in range(question_set.samples)
        if (problem, sample) not in file.done
    ]


class Generator:
    """The requests for responses of some sets, and the rows of what the engine answers.

    engine: one in tandem, or vLLM's own ``LLM`` if the senior answers all sets alone. parameters:
    the sampling parameters of a request, by its sampling seed and the number of its prompt's
    tokens. room: the tokens that must fit after a prompt of so many; below one if none may.
    template_args: arguments of the chat template.
    """

    def __init__(
        self,
        engine: TandemLLM,
        sets: Sequence[ResponseSet],
        parameters: Callable[[int, int], SamplingParams],
        room: Callable[[int], int],
        template_args: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._engine = engine
        self._sets = sets
        self._parameters = parameters
        self._room = room
        self._template_args = template_args
        self._tokenizer = engine.get_tokenizer()
        self._ids: dict[tuple[int, int], list[int]] = {}
        self._read: dict[tuple[int, int], list[int]] = {}
        scheduler = engine.llm_engine.vllm_config.scheduler_config
        self.most = 2 * int(scheduler.max_num_seqs)
        """The requests that the engine has at once: enough to keep it busy."""

    def written(self) -> int | None:
        """The tokens that the engine has generated, those of unfinished responses included.

        None if it does not count them.
        """
        return generated_tokens(self._engine)

    def check_prompts(self, places: Iterable[Place]) -> None:
        """Raise :class:`DataError` for the first prompt that is too long or cannot be rendered."""
        longest = self._engine.llm_engine.model_config.max_model_len
        for place in places:
            tokens = len(self.read_ids(place))
            room = self._room(tokens)
            if room < 1 or tokens + room > longest:
                raise DataError(
                    "problem-too-long",
                    problem=place.problem,
                    name=self._sets[place.file].name,
                    tokens=tokens,
                    room=max(room, 1),
                    longest=min(longest, tokens + room) if room < 1 else longest,
                )

    def prompt_ids(self, place: Place) -> list[int]:
        """The token ids of a response's prompt, with one placeholder for each image.

        Raises :class:`DataError` if it has none.
        """
        key = place.file, place.problem
        if key not in self._ids:
            question = self._question(place)
            self._ids[key] = prompt_ids(
                question.turns, self._tokenizer, self._template_args, bool(question.images)
            )
        return self._ids[key]

    def read_ids(self, place: Place) -> list[int]:
        """The token ids that the engine reads, in which each image has all of its tokens.

        Raises :class:`DataError` for a prompt that the engine rejects.
        """
        if not self._question(place).images:
            return self.prompt_ids(place)
        key = place.file, place.problem
        if key not in self._read:
            from tandem_plugin.engine.images import read_prompt

            prompt = self._prompt(place)
            try:
                self._read[key] = read_prompt(self._engine, prompt)
            except Exception as error:  # vLLM's own
                name = self._sets[place.file].name
                raise DataError(
                    "image-prompt-rejected", problem=place.problem, name=name, reason=error
                ) from error
        return self._read[key]

    def _question(self, place: Place) -> Question:
        return self._sets[place.file].questions[place.problem]

    def _prompt(self, place: Place) -> dict[str, Any]:
        """A response's prompt in vLLM's form."""
        prompt: dict[str, Any] = {"prompt_token_ids": list(self.prompt_ids(place))}
        if images := self._question(place).images:
            prompt["multi_modal_data"] = {"image": [picture.image() for picture in images]}
        return prompt

    def rows(self, places: Iterable[Place]) -> Iterator[tuple[Place, Row]]:
        """The rows of these responses as they finish."""
        requests = map(self._request, places)
        is_alone = self._sets[0].schedule is None
        outputs = self._stream(requests) if is_alone else self._engine.stream(requests, self.most)
        for place, output in outputs:
            yield place, self._row(place, output)

    def _request(self, place: Place) -> tuple[Place, Any, SamplingParams, Mapping[str, Any] | None]:
        """(place, prompt, sampling parameters, tandem parameters) of one response."""
        question_set = self._sets[place.file]
        seed, draws = question_set.seeds(place.problem, place.sample)
        tandem = None if question_set.schedule is None else {**question_set.schedule, "seed": draws}
        tokens = len(self.read_ids(place))
        return place, self._prompt(place), self._parameters(seed, tokens), tandem

    def _row(self, place: Place, output: RequestOutput) -> Row:
        (response,) = output.outputs
        question_set = self._sets[place.file]
        row = {
            **self._question(place).fields,
            "response": response.text,
            "finish_reason": response.finish_reason,
            **({"prompt_ids": self.read_ids(place)} if question_set.has_prompt_ids else {}),
            "response_ids": list(response.token_ids),
        }
        if question_set.schedule is None:
            return {**row, "tandem_seed": None}
        return {
            **row,
            "authorship": response.authorship.tolist(),
            "tandem_seed": response.tandem_seed,
            "tandem_fingerprint": response.tandem_fingerprint,
            "tandem_schedule": response.tandem_schedule,
            **_logprobs(response),
        }

    def _stream(
        self, requests: Iterator[tuple[Place, Any, SamplingParams, Mapping[str, Any] | None]]
    ) -> Iterator[tuple[Place, RequestOutput]]:
        """Like :meth:`TandemLLM.stream`, for an engine of the senior alone."""
        running: dict[str, Place] = {}
        while True:
            for place, prompt, params, _ in islice(requests, self.most - len(running)):
                (name,) = self._engine.enqueue([prompt], params, use_tqdm=False)
                # Outputs have the number that LLM assigns; vLLM appends a random part to it.
                running[name.partition("-")[0]] = place
            if not running:
                return
            for output in self._engine.llm_engine.step():
                if output.finished:
                    yield running.pop(output.request_id), output


def _logprobs(response: Any) -> dict[str, list[float | None]]:
    """Both models' log-probability of each token, in nats, if the engine measures them.

    None where a model gives a token no probability.
    """
    return {
        name: [round(p, 4) if isfinite(p) else None for p in map(float, values)]
        for name in ("senior_logprobs", "junior_logprobs")
        if (values := getattr(response, name)) is not None
    }


def generated_tokens(engine: Any) -> int | None:
    """The tokens of this process's engine, by vLLM's metrics; None if it logs none."""
    if not engine.llm_engine.log_stats:
        return None
    counters = (
        counter for counter in engine.get_metrics() if counter.name == "vllm:generation_tokens"
    )
    return sum(int(counter.value) for counter in counters)


def write_rows(
    rows: Iterable[tuple[Place, Row]],
    sets: Sequence[ResponseSet],
    files: Sequence[RolloutFile],
    title: str,
    grader: Grader | None = None,
    written: Callable[[], int | None] = lambda: None,
) -> None:
    """Append each row to its file when it is finished, with a progress bar called ``title``.

    written: see :func:`response_progress`.
    grader: grades each response before its row is written, while the engine continues. A response
    whose grade is pending when the run is stopped is generated again by the next run.
    """
    total = sum(len(question_set.questions) * question_set.samples for question_set in sets)
    pending: deque[tuple[Place, Row, Future[Grade] | None]] = deque()

    def write_first() -> None:
        place, row, grade = pending.popleft()
        fields = {} if grade is None else _grade_fields(grade.result())
        files[place.file].append(place.problem, place.sample, row | fields)

    try:
        done = total - len(missing(sets, files))
        with response_progress(title, total, done, written) as advance:
            for place, row in rows:
                golds = list(sets[place.file].questions[place.problem].golds)
                grade = None if grader is None else grader.submit(row["response"], golds)
                pending.append((place, row, grade))
                while pending and ((first := pending[0][-1]) is None or first.done()):
                    write_first()
                advance(len(row["response_ids"]))
        while pending:
            write_first()
    finally:
        for *_, grade in pending:
            if grade is not None:
                grade.cancel()


def _grade_fields(grade: Grade) -> Row:
    return {
        "reward": grade.reward,
        "outcome": grade.outcome,
        "pred": grade.answer or "",
        "grading_rule": grade.rule,
    }
