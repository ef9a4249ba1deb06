"""``tandem rollout``: responses of a senior and a junior to a file of problems."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from contextlib import nullcontext
from functools import partial
from importlib.metadata import version
from itertools import product
from json import dumps
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin._version import __version__
from tandem_plugin.lab.commands.options import (
    RESOLVERS,
    SCHEDULES,
    EngineOption,
    FieldsOption,
    JuniorOption,
    MapOption,
    MaxTokensOption,
    SamplesOption,
    SeedOption,
    SeniorOption,
    TemperatureOption,
    TemplateOption,
    TopPOption,
    complete_boundaries,
    complete_problems,
    complete_schedule,
    engine_arguments,
    template_arguments,
)
from tandem_plugin.terminal.arguments import SettingsOption, assignments, rows_of_stdin
from tandem_plugin.terminal.output import INTERRUPTED, JsonOption, echo, print_json

if TYPE_CHECKING:
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.lab.data import Layout, Problem
    from tandem_plugin.lab.data.problem import Message
    from tandem_plugin.lab.data.rows import NeedsAnswer
    from tandem_plugin.lab.rollouts.generate import Question


def rollout(
    senior: SeniorOption,
    problems: Annotated[
        str,
        typer.Option(
            callback=rows_of_stdin,
            autocompletion=complete_problems,
            help="Problems, optionally with answers, as for `tandem data prepare`: a .jsonl, .json "
            "or .parquet file, - for JSON Lines from standard input, a set on the Hub or by name.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The rollout file to write or resume.")],
    junior: JuniorOption = None,
    schedule: Annotated[
        str,
        typer.Option(
            autocompletion=complete_schedule, help=f"The schedule: {SCHEDULES}, or a plugin's."
        ),
    ] = "word",
    boundaries: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_boundaries,
            help=f"The boundary resolver: {RESOLVERS}, or a plugin's. Default: the schedule's own.",
        ),
    ] = None,
    settings: SettingsOption = None,
    field: FieldsOption = None,
    map: MapOption = None,
    samples: SamplesOption = 1,
    seed: SeedOption = 0,
    max_tokens: MaxTokensOption = 2048,
    temperature: TemperatureOption = 1.0,
    top_p: TopPOption = 1.0,
    grade: Annotated[
        bool,
        typer.Option(
            "--grade",
            help="Ask for the answer in a box, as training data and `tandem eval` do, and "
            "grade each response. Every problem needs an answer.",
        ),
    ] = False,
    instruction: Annotated[
        str | None,
        typer.Option(
            help="Instruction to add to each problem. Default: with --grade, the common "
            "instruction to answer in a box, unless `tandem data prepare` wrote the file; "
            "otherwise none."
        ),
    ] = None,
    template_args: TemplateOption = None,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Let a senior and a junior answer every problem n times; write one line of JSON per response.

    Each line is written as soon as its response is finished. Run the same command again to resume
    after an interruption, or with a larger --samples. A file made with other settings, problems,
    answers or weights is rejected. `tandem replay` and
    `tandem view` read the file. With --grade, each line includes its reward, and the command prints
    the mean reward. The exit code is 130 if interrupted.
    """
    from tandem_plugin._draws import check_seed
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.files import check_outputs
    from tandem_plugin.files.checkpoints import check_model, model_files
    from tandem_plugin.grading import Grader
    from tandem_plugin.lab.data import INSTRUCTION, layout_of
    from tandem_plugin.lab.data.instructions import asks_for_no_box, without_box_note
    from tandem_plugin.lab.data.preparation import written_template
    from tandem_plugin.lab.rollouts.engine import deciding, report_unused, start_engine
    from tandem_plugin.lab.rollouts.generate import (
        Generator,
        ResponseSet,
        missing,
        sampling_parameters,
        write_rows,
    )
    from tandem_plugin.lab.rollouts.rollout import check_row, text_digest
    from tandem_plugin.lab.rollouts.rollout_file import RolloutFile, run_file
    from tandem_plugin.schedules import schedule_parameters

    check_seed(seed)
    check_model(senior, "senior")
    check_model(junior or senior, "junior")
    asked = {"schedule": schedule, "boundaries": boundaries, **assignments("--set", settings or [])}
    config = TandemConfig.from_mapping({**asked, "junior": junior})
    chosen = config.make_schedule()
    arguments, rendering = engine_arguments(engine), template_arguments(template_args)
    sampling: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
    }
    if grade and instruction is None and written_template(Path(problems)) is None:
        instruction = INSTRUCTION
    layout = layout_of(field or (), map)
    listed = read_prompts(problems, "required" if grade else "optional", layout)
    asked_otherwise = [asks_for_no_box(_turns(prompt_of(one, instruction))) for one in listed]
    if grade and (note := without_box_note(sum(asked_otherwise))):
        echo(note, err=True)
    asked_and_known = dumps([[prompt_of(one), list(one.golds)] for one in listed])
    grader = Grader() if grade else None  # raises before the models load if SymPy is missing
    noted = {
        "tandem_plugin": __version__,
        "senior": _named(senior),
        "junior": _named(junior or senior),
        **_models(senior, junior or senior, arguments, config),
        "schedule": config.schedule,
        "parameters": schedule_parameters(chosen),
        "boundaries": config.boundaries or chosen.boundaries,
        "problems": {"count": len(listed), "sha256": text_digest(asked_and_known)},
        "seed": seed,
        **sampling,
        # None if not requested, so that a file without the field can be resumed.
        "instruction": instruction,
        "template_args": rendering or None,
        "grade": {"sympy": version("sympy")} if grade else None,
        "engine": deciding(arguments),
    }
    one = ResponseSet(
        Path(problems).name,
        [asked_as(problem, instruction) for problem in listed],
        samples,
        partial(seeds_of, seed),
        {},
    )
    places = set(product(range(len(listed)), range(samples)))
    models = {"senior": model_files(senior), "junior": model_files(junior or senior)}
    check_outputs({"problems": [problems], **models}, out, run_file(out))
    check = _check_graded if grade else check_row
    with RolloutFile(out, noted, check) as file, grader or nullcontext():
        todo = missing([one], [file])
        before = len(places) - len(todo)
        try:
            if todo:
                llm = start_engine(senior, arguments, config.settings(), max_tokens)
                report_unused(llm.get_tokenizer(), rendering)
                generator = Generator(
                    llm,
                    [one],
                    lambda seed, _: sampling_parameters(seed, **sampling),
                    lambda _: 1,
                    rendering,
                )
                generator.check_prompts(todo)
                write_rows(
                    generator.rows(todo), [one], [file], "rollout", grader, generator.written
                )
        except KeyboardInterrupt:
            done = len(file.done & places)
            echo(
                f"Stopped: {done:,} of {len(places):,} responses are in {out}. Run the "
                "same command again to resume.",
                err=True,
            )
            raise typer.Exit(INTERRUPTED) from None
        written = len(file.done & places) - before
    result = {
        "rollouts": str(out),
        "responses": len(places),
        "written": written,
        "found": before,
    }
    if grade:
        rewards, result["repeated"] = _rewards(out, places)
        result["reward"] = fmean(rewards) if rewards else None
    if json:
        print_json(result)
        return
    echo(
        f"{out}: wrote {written:,} responses, {before:,} already present, {len(places):,} in total."
    )
    if result.get("reward") is not None:
        echo(f"Mean reward: {result['reward']:.4f}.")
    if repeated := result.get("repeated"):
        echo(f"Lines that repeat a response and are not counted: {repeated:,}.")


def _rewards(out: Path, places: Set[tuple[int, int]]) -> tuple[list[float], int]:
    """The rewards of these responses, each once, and how many lines repeat one of them."""
    from tandem_plugin.lab.rollouts.rollout_file import placed_rows

    lines = 0
    found: dict[tuple[int, int], float] = {}
    for problem, sample, row in placed_rows(out):
        if (problem, sample) in places:
            lines += 1
            found.setdefault((problem, sample), row["reward"])
    return list(found.values()), lines - len(found)


def _check_graded(row: Mapping[str, Any]) -> None:
    """Raise ValueError for a row that is not a rollout with its reward."""
    from tandem_plugin.files import is_number
    from tandem_plugin.lab.rollouts.rollout import check_row

    check_row(row)
    if not is_number(row.get("reward")):
        raise ValueError("its reward is not a number")


def read_prompts(
    source: str, golds: NeedsAnswer = "optional", layout: Layout | None = None
) -> tuple[Problem, ...]:
    """The problems of a source, read as :func:`~tandem_plugin.lab.data.read_problems` does.

    Fields that are not read are said on stderr.
    """
    from tandem_plugin.lab.data import Layout, read_problems

    problems = read_problems(source, golds=golds, layout=layout or Layout())
    if note := problems.unread_note():
        echo(note, err=True)
    return problems.problems


def prompt_of(problem: Problem, instruction: str | None = None) -> str | list[Message]:
    """The prompt as its row has it, white space included; with an instruction, as a chat."""
    from tandem_plugin.lab.data import PromptTemplate

    if instruction is not None:
        return PromptTemplate(instruction=instruction).messages(problem)
    return list(problem.messages) if problem.raw is None else problem.raw


def asked_as(problem: Problem, instruction: str | None) -> Question:
    """A problem with its instruction, and its fields in a row: an answer, if it has any."""
    from tandem_plugin.lab.rollouts.generate import Question

    prompt = prompt_of(problem, instruction)
    golds = list(problem.golds)
    fields: dict[str, Any] = {"prompt": prompt}
    if golds:
        fields["answer"] = golds[0] if len(golds) == 1 else golds
    return Question(_turns(prompt), fields, golds)


def seeds_of(seed: int, problem: int, sample: int) -> tuple[int, int]:
    """(sampling seed, tandem seed) of one response."""
    from tandem_plugin.seeds import derive_seed

    place = problem, sample
    return derive_seed(seed, "sampling", *place), derive_seed(seed, "rollout", *place)


def _turns(prompt: str | list[Message]) -> list[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def _named(model: str) -> str:
    """A model as it is recorded: a folder by its absolute path, so that resuming finds it."""
    return str(Path(model).resolve()) if os.path.exists(model) else model


def _models(
    senior: str, junior: str, arguments: Mapping[str, Any], config: TandemConfig
) -> dict[str, Any]:
    """Fingerprints of both models' weights and of the rule over the senior's tokenizer.

    The folders and an installed plugin may have others on resuming.
    """
    from tandem_plugin.boundaries import Vocabulary
    from tandem_plugin.files.checkpoints import checkpoint_folder, fingerprint_checkpoint
    from tandem_plugin.progress import waiting
    from tandem_plugin.rules import TandemRules

    where = arguments.get("revision"), arguments.get("download_dir")
    with waiting("read the checkpoints", bar=True):
        folder = checkpoint_folder(senior, *where)
        first = second = fingerprint_checkpoint(folder)
        if _named(junior) != _named(senior):
            second = fingerprint_checkpoint(checkpoint_folder(junior))
        rules = TandemRules(config, Vocabulary.from_path(arguments.get("tokenizer") or folder))
    rule = rules.default.record()
    return {"senior_fingerprint": first, "junior_fingerprint": second, "rule": rule}
