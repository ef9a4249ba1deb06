"""``tandem rollout``: responses of a senior and a junior to a file of problems."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from json import dumps
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tandem_plugin._version import __version__
from tandem_plugin.errors import DataError
from tandem_plugin.lab.commands.options import (
    EngineOption,
    JuniorOption,
    MaxTokensOption,
    SamplesOption,
    SeedOption,
    SeniorOption,
    TemperatureOption,
    TemplateOption,
    TopPOption,
    engine_arguments,
    template_arguments,
)
from tandem_plugin.terminal.arguments import SettingsOption, assignments, rows_of_stdin
from tandem_plugin.terminal.output import INTERRUPTED, JsonOption, echo, print_json

if TYPE_CHECKING:
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.engine.llm import TandemLLM
    from tandem_plugin.grading import Grade, Grader
    from tandem_plugin.lab.data import Problem
    from tandem_plugin.lab.data.problem import Message
    from tandem_plugin.lab.rollouts.rollout_file import RolloutFile


def rollout(
    senior: SeniorOption,
    problems: Annotated[
        str,
        typer.Option(
            callback=rows_of_stdin,
            help="Problems, optionally with answers, as for `tandem data prepare`: a .jsonl, .json "
            "or .parquet file, - for JSON Lines from standard input, a set on the Hub or by name.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The rollout file to write or resume.")],
    junior: JuniorOption = None,
    schedule: Annotated[str, typer.Option(help="The schedule.")] = "word",
    boundaries: Annotated[
        str | None, typer.Option(help="The boundary resolver. Default: the schedule's own.")
    ] = None,
    settings: SettingsOption = None,
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
    from tandem_plugin.lab.data import INSTRUCTION
    from tandem_plugin.lab.data.instructions import asks_for_no_box, without_box_note
    from tandem_plugin.lab.data.preparation import written_template
    from tandem_plugin.lab.rollouts.engine import deciding, report_unused, start_engine
    from tandem_plugin.lab.rollouts.rollout import check_row
    from tandem_plugin.lab.rollouts.rollout_file import RolloutFile, run_file, text_digest
    from tandem_plugin.schedules import schedule_parameters

    check_seed(seed)
    check_model(senior, "senior")
    check_model(junior or senior, "junior")
    asked = {"schedule": schedule, "boundaries": boundaries, **assignments("--set", settings or [])}
    config = TandemConfig.from_mapping({**asked, "junior": junior})
    chosen = config.make_schedule()
    arguments, rendering = engine_arguments(engine), template_arguments(template_args)
    sampling = {"max_tokens": max_tokens, "temperature": temperature, "top_p": top_p}
    if grade and instruction is None and written_template(Path(problems)) is None:
        instruction = INSTRUCTION
    listed = read_prompts(problems, "required" if grade else "optional")
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
    places = [(i, j) for i in range(len(listed)) for j in range(samples)]
    models = {"senior": model_files(senior), "junior": model_files(junior or senior)}
    check_outputs({"problems": [problems], **models}, out, run_file(out))
    check = _check_graded if grade else check_row
    with RolloutFile(out, noted, check) as file, grader or nullcontext():
        todo = [place for place in places if place not in file.done]
        before = len(places) - len(todo)
        try:
            if todo:
                llm = start_engine(senior, arguments, config.settings(), max_tokens)
                report_unused(llm.get_tokenizer(), rendering)
                run = RolloutRun(llm, listed, instruction, seed, sampling, rendering)
                write_rollouts(run, file, todo, len(places), grader)
        except KeyboardInterrupt:
            done = len(file.done & set(places))
            echo(
                f"Stopped: {done:,} of {len(places):,} responses are in {out}. Run the "
                "same command again to resume.",
                err=True,
            )
            raise typer.Exit(INTERRUPTED) from None
        written = len(file.done & set(places)) - before
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


def _rewards(out: Path, places: Sequence[tuple[int, int]]) -> tuple[list[float], int]:
    """The rewards of these responses, each once, and how many lines repeat one of them."""
    from tandem_plugin.lab.rollouts.rollout_file import placed_rows

    known, lines = set(places), 0
    found: dict[tuple[int, int], float] = {}
    for problem, sample, row in placed_rows(out):
        if (problem, sample) in known:
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
    source: str, golds: Literal["required", "optional"] = "optional"
) -> tuple[Problem, ...]:
    """The problems of a source or of a named set.

    golds: whether each needs its answer. Raises :class:`DataError` naming the source and the row
    for an invalid row.
    """
    from tandem_plugin.lab.data import load_named, read_problems
    from tandem_plugin.lab.data.named import check_source, is_named

    if is_named(source):
        return load_named(source).problems
    check_source(source)
    found = read_problems(source, bad_rows="skip", name=source, golds=golds)
    if found.bad_rows:
        bad, *more = found.bad_rows
        others = f" {len(more):,} more rows are invalid." if more else ""
        raise DataError(
            "source-row-invalid", source=source, row=bad.row, reason=bad.reason, others=others
        )
    if note := found.unread_note():
        echo(note, err=True)
    return found.problems


def prompt_of(problem: Problem, instruction: str | None = None) -> str | list[Message]:
    """The prompt as its row has it, white space included; with an instruction, as a chat."""
    from tandem_plugin.lab.data import PromptTemplate

    if instruction is not None:
        return PromptTemplate(instruction=instruction).messages(problem)
    return list(problem.messages) if problem.raw is None else problem.raw


def token_ids(
    problem: Problem,
    instruction: str | None,
    tokenizer: Any,
    template_args: Mapping[str, Any] = MappingProxyType({}),
) -> list[int]:
    """The token ids of the prompt, in the chat template if the tokenizer has one."""
    from tandem_plugin.lab.data.problem import prompt_ids

    return prompt_ids(_turns(prompt_of(problem, instruction)), tokenizer, template_args)


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


@dataclass(frozen=True)
class RolloutRun:
    """The requests of a run, and the rows of its responses."""

    llm: TandemLLM
    problems: Sequence[Problem]
    instruction: str | None
    seed: int
    sampling: Mapping[str, Any]
    template_args: Mapping[str, Any]

    def requests(self, places: Sequence[tuple[int, int]]) -> Iterator[tuple[Any, Any, Any, Any]]:
        """(place, prompt, sampling parameters, tandem seed) of each response.

        Raises :class:`DataError` for a prompt that is too long for the model.
        """
        from vllm import SamplingParams

        from tandem_plugin.seeds import derive_seed

        longest = self.llm.llm_engine.model_config.max_model_len
        tokenizer = self.llm.get_tokenizer()
        prompts = [
            token_ids(p, self.instruction, tokenizer, self.template_args) for p in self.problems
        ]
        for problem, ids in enumerate(prompts):
            if len(ids) >= longest:
                raise DataError(
                    "problem-too-long", problem=problem, tokens=len(ids), longest=longest
                )
        for problem, sample in places:
            seed = derive_seed(self.seed, "sampling", problem, sample)
            params = SamplingParams(**self.sampling, seed=seed)
            tandem_seed = derive_seed(self.seed, "rollout", problem, sample)
            yield (problem, sample), {"prompt_token_ids": prompts[problem]}, params, tandem_seed

    def row(self, problem: int, output: Any) -> dict[str, Any]:
        """The fields of one response's row."""
        (response,) = output.outputs
        asked = self.problems[problem]
        known = asked.golds[0] if len(asked.golds) == 1 else list(asked.golds)
        return {
            "prompt": prompt_of(asked, self.instruction),
            **({"answer": known} if asked.golds else {}),
            "response": response.text,
            "finish_reason": response.finish_reason,
            "response_ids": list(response.token_ids),
            "authorship": response.authorship.tolist(),
            "tandem_seed": response.tandem_seed,
            "tandem_fingerprint": response.tandem_fingerprint,
            "tandem_schedule": response.tandem_schedule,
        }


def write_rollouts(
    run: RolloutRun,
    file: RolloutFile,
    todo: Sequence[tuple[int, int]],
    responses: int,
    grader: Grader | None,
) -> None:
    """Generate responses and write a line for each finished one, with a progress bar.

    grader: grades each response before its line is written, while the engine continues. A response
    whose grade is pending when the run is stopped is generated again by the next run.
    """
    from tandem_plugin.lab.rollouts.engine import response_progress

    most = 2 * run.llm.llm_engine.vllm_config.scheduler_config.max_num_seqs
    pending: deque[tuple[tuple[int, int], dict[str, Any], Any]] = deque()

    def write_first() -> None:
        place, row, grade = pending.popleft()
        file.append(*place, row | ({} if grade is None else _graded(grade.result())))

    try:
        with response_progress("rollout", responses, responses - len(todo)) as advance:
            for place, output in run.llm.stream(run.requests(todo), most):
                row = run.row(place[0], output)
                golds = list(run.problems[place[0]].golds)
                grade = None if grader is None else grader.submit(row["response"], golds)
                pending.append((place, row, grade))
                while pending and (pending[0][-1] is None or pending[0][-1].done()):
                    write_first()
                advance(len(output.outputs[0].token_ids))
        while pending:
            write_first()
    finally:
        for *_, grade in pending:
            grade.cancel()


def _graded(grade: Grade) -> dict[str, Any]:
    return {
        "reward": grade.reward,
        "outcome": grade.outcome,
        "pred": grade.answer or "",
        "grading_rule": grade.rule,
    }
