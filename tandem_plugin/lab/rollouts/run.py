"""The responses of a senior and a junior to a set of problems, in one file that can be resumed.

What a run is asked for is a :class:`RolloutOptions`; :func:`roll_out` checks it, reads the
problems, resumes or starts the file, and generates what it lacks. ``tandem rollout`` does nothing
else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from json import dumps
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from tandem_plugin._draws import check_seed
from tandem_plugin._version import __version__
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.files import check_outputs, is_number
from tandem_plugin.files.checkpoints import (
    check_model,
    checkpoint_folder,
    mark_checkpoint,
    model_files,
)
from tandem_plugin.grading import Grader
from tandem_plugin.lab.data import (
    INSTRUCTION,
    Layout,
    Problem,
    ProblemSet,
    PromptTemplate,
    read_problems,
)
from tandem_plugin.lab.data.instructions import asks_for_no_box, without_box_note
from tandem_plugin.lab.data.preparation import written_template
from tandem_plugin.lab.data.problem import Message
from tandem_plugin.lab.data.rows import NeedsAnswer
from tandem_plugin.lab.rollouts import engine, generate
from tandem_plugin.lab.rollouts.generate import Generator, Question, ResponseSet, thumbnails
from tandem_plugin.lab.rollouts.rollout import check_row, text_digest
from tandem_plugin.lab.rollouts.rollout_file import (
    RolloutFile,
    placed_rows,
    run_file,
)
from tandem_plugin.patching.versions import installed_version, library_versions
from tandem_plugin.progress import waiting
from tandem_plugin.rules import TandemRules
from tandem_plugin.schedules import schedule_parameters
from tandem_plugin.seeds import derive_seed

Place: TypeAlias = tuple[int, int]
"""(problem, sample) of a response."""


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """What a run is asked for."""

    senior: str
    """A checkpoint's folder, or its name on the Hub."""
    problems: str
    """A source of :func:`~tandem_plugin.lab.data.read_problems`."""
    out: Path
    """The file to write or resume."""
    tandem: TandemConfig
    """The junior is null for the senior's own checkpoint."""
    layout: Layout = field(default_factory=Layout)
    samples: int = 1
    """Responses to each problem."""
    seed: int = 0
    max_tokens: int = 2048
    temperature: float = 1.0
    top_p: float = 1.0
    grade: bool = False
    """Whether to ask for the answer in a box, and to grade each response."""
    instruction: str | None = None
    """Added to each problem. None adds the common one if the responses are graded and
    ``tandem data prepare`` did not write the file, otherwise nothing."""
    template_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the senior's chat template."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of vLLM's engine."""

    @property
    def junior(self) -> str:
        """The junior's checkpoint."""
        return self.tandem.junior or self.senior

    def sampling(self) -> dict[str, Any]:
        """vLLM's sampling parameters, except for the seed."""
        return {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }


@dataclass(frozen=True, slots=True)
class RolledOut:
    """What a run has written."""

    rollouts: Path
    responses: int
    """All that were asked for."""
    written: int
    """Those of this run."""
    found: int
    """Those that were there before."""
    reward: float | None = None
    """The mean reward, if the responses are graded."""
    repeated: int | None = None
    """Lines that repeat a response and do not count in the mean, if the responses are graded."""


class RolloutStoppedError(KeyboardInterrupt):
    """A run was interrupted; ``done`` of its ``responses`` are in the file."""

    def __init__(self, done: int, responses: int) -> None:
        super().__init__()
        self.done, self.responses = done, responses


def roll_out(
    options: RolloutOptions, note: Callable[[str], object] = lambda text: None
) -> RolledOut:
    """Generate the responses that the file lacks, and write each when it is finished.

    note: called with what a user should know of the problems. Raises :class:`RolloutStoppedError`
    if interrupted; :class:`DataError`, :class:`ConfigError` and :class:`OutputError` before
    anything is written if the options, the problems or the file cannot be used; and
    :class:`EngineError`.
    """
    check_seed(options.seed)
    check_model(options.senior, "senior")
    check_model(options.junior, "junior")
    instruction = _instruction(options)
    problems = _problems(options, note)
    responses = _responses(options, problems, instruction)
    if options.grade:
        unboxed = sum(asks_for_no_box(question.turns) for question in responses.questions)
        if text := without_box_note(unboxed):
            note(text)
    grader = Grader() if options.grade else None  # raises before the models load without SymPy
    noted = _noted(options, problems.problems, instruction)
    models = {"senior": model_files(options.senior), "junior": model_files(options.junior)}
    check_outputs({"problems": [options.problems], **models}, options.out, run_file(options.out))
    check = _check_graded if options.grade else check_row
    with RolloutFile(options.out, noted, check) as file, grader or nullcontext():
        written = _write_missing(options, responses, file, grader)
    return _rolled_out(options, responses, written)


def _write_missing(
    options: RolloutOptions, responses: ResponseSet, file: RolloutFile, grader: Grader | None
) -> int:
    """Generate and write the responses that a file lacks; returns their number."""
    places = _places(responses)
    todo = generate.missing([responses], [file])
    if not todo:
        return 0
    try:
        arguments, tandem = engine.with_images(
            options.engine, options.tandem.settings(), responses.most_images
        )
        llm = engine.start_engine(options.senior, arguments, tandem, options.max_tokens)
        engine.check_template_args(llm.get_tokenizer(), options.template_args)
        generator = Generator(
            llm,
            [responses],
            lambda seed, _: generate.sampling_parameters(seed, **options.sampling()),
            lambda _: 1,
            options.template_args,
        )
        generator.check_prompts(todo)
        rows = generator.rows(todo)
        generate.write_rows(rows, [responses], [file], "rollout", grader, generator.written)
    except KeyboardInterrupt:
        raise RolloutStoppedError(len(file.done & places), len(places)) from None
    return len(todo)


def _rolled_out(options: RolloutOptions, responses: ResponseSet, written: int) -> RolledOut:
    places = _places(responses)
    rewards, repeated = _rewards(options.out, places) if options.grade else ([], None)
    return RolledOut(
        rollouts=options.out,
        responses=len(places),
        written=written,
        found=len(places) - written,
        reward=fmean(rewards) if rewards else None,
        repeated=repeated,
    )


def _places(responses: ResponseSet) -> set[Place]:
    return set(product(range(len(responses.questions)), range(responses.samples)))


def _rewards(out: Path, places: Set[Place]) -> tuple[list[float], int]:
    """The rewards of these responses, each once, and how many lines repeat one of them."""
    lines = 0
    rewards: dict[Place, float] = {}
    for problem, sample, row in placed_rows(out):
        if (problem, sample) in places:
            lines += 1
            rewards.setdefault((problem, sample), row["reward"])
    return list(rewards.values()), lines - len(rewards)


def _check_graded(row: Mapping[str, Any]) -> None:
    """Raise ValueError for a row that is not a rollout with its reward."""
    check_row(row)
    if not is_number(row.get("reward")):
        raise ValueError("its reward is not a number")


# Problems.


def _problems(options: RolloutOptions, note: Callable[[str], object]) -> ProblemSet:
    """The problems of a run; ``note`` is called with the fields that are not read, if any."""
    golds: NeedsAnswer = "required" if options.grade else "optional"
    problems = read_problems(options.problems, golds=golds, layout=options.layout)
    if text := problems.unread_note():
        note(text)
    return problems


def _instruction(options: RolloutOptions) -> str | None:
    if options.grade and options.instruction is None:
        return None if written_template(Path(options.problems)) else INSTRUCTION
    return options.instruction


def _responses(
    options: RolloutOptions, problems: ProblemSet, instruction: str | None
) -> ResponseSet:
    return ResponseSet(
        Path(options.problems).name,
        [question_of(problem, instruction) for problem in problems.problems],
        options.samples,
        partial(seeds_of, options.seed),
        {},
    )


def prompt_of(problem: Problem, instruction: str | None = None) -> str | list[Message]:
    """The prompt as its row has it, white space included; with an instruction, as a chat."""
    if instruction is not None:
        return PromptTemplate(instruction=instruction).messages(problem)
    return list(problem.messages) if problem.raw is None else problem.raw


def question_of(problem: Problem, instruction: str | None) -> Question:
    """A problem with its instruction, and its fields in a row: an answer, if it has any."""
    prompt = prompt_of(problem, instruction)
    turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    golds = list(problem.golds)
    fields: dict[str, Any] = {"prompt": prompt}
    if golds:
        fields["answer"] = golds[0] if len(golds) == 1 else golds
    return Question(turns, {**fields, **thumbnails(problem.images)}, golds, problem.images)


def seeds_of(seed: int, problem: int, sample: int) -> tuple[int, int]:
    """(sampling seed, tandem seed) of one response."""
    place = problem, sample
    return derive_seed(seed, "sampling", *place), derive_seed(seed, "rollout", *place)


# The note of what the file was made with.


def _noted(
    options: RolloutOptions, problems: Sequence[Problem], instruction: str | None
) -> dict[str, Any]:
    """Everything that the responses depend on, which is checked on resuming."""
    schedule = options.tandem.make_schedule()
    contents = dumps(
        [
            [
                prompt_of(problem),
                list(problem.golds),
                *(picture.digest for picture in problem.images),
            ]
            for problem in problems
        ]
    )
    return {
        "tandem_plugin": __version__,
        **library_versions(),
        "senior": _absolute(options.senior),
        "junior": _absolute(options.junior),
        **_models(options),
        "schedule": options.tandem.schedule,
        "parameters": schedule_parameters(schedule),
        "boundaries": options.tandem.boundaries or schedule.boundaries,
        "problems": {"count": len(problems), "sha256": text_digest(contents)},
        "seed": options.seed,
        **options.sampling(),
        "instruction": instruction,
        "template_args": dict(options.template_args) or None,
        "grade": {"sympy": installed_version("sympy")} if options.grade else None,
        "engine": engine.deciding(options.engine),
    }


def _absolute(model: str) -> str:
    """A model as it is recorded: a folder by its absolute path, so that resuming finds it."""
    return str(Path(model).resolve()) if os.path.exists(model) else model


def _models(options: RolloutOptions) -> dict[str, Any]:
    """Fingerprints of both models' weights and of the rule over the senior's tokenizer.

    The folders and an installed plugin may have others on resuming.
    """
    where = options.engine.get("revision"), options.engine.get("download_dir")
    with waiting("read the checkpoints", bar=True):
        folder = checkpoint_folder(options.senior, *where)
        senior = junior = mark_checkpoint(folder)
        if _absolute(options.junior) != _absolute(options.senior):
            junior = mark_checkpoint(checkpoint_folder(options.junior))
        vocabulary = Vocabulary.from_path(options.engine.get("tokenizer") or folder)
        rule = TandemRules(options.tandem, vocabulary).default.record()
    return {"senior_fingerprint": senior, "junior_fingerprint": junior, "rule": rule}
