"""``tandem rollout``: responses of a senior and a junior to a file of problems."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.cli.assignments import SettingsOption, assignments
from tandem_plugin.cli.engine_arguments import EngineOption
from tandem_plugin.cli.output import INTERRUPTED, JsonOption, print_json

if TYPE_CHECKING:
    from tandem_plugin.data import Problem
    from tandem_plugin.engine.llm import TandemLLM
    from tandem_plugin.rollouts.rollout_file import RolloutFile

__all__ = ["rollout"]


def rollout(
    senior: Annotated[str, typer.Option(help="The senior: a checkpoint's folder or name.")],
    problems: Annotated[
        str,
        typer.Option(
            help="Problems, perhaps with answers: a .jsonl, .json or .parquet file, the folder of "
            "a saved Hugging Face data set, or owner/name#split on the Hub."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file of rollouts to write, or to go on with.")],
    junior: Annotated[
        str | None, typer.Option(help="The junior; without it, the senior's own checkpoint.")
    ] = None,
    schedule: Annotated[str, typer.Option(help="The schedule.")] = "word",
    boundaries: Annotated[
        str | None, typer.Option(help="The boundary resolver; without it, the schedule's own.")
    ] = None,
    settings: SettingsOption = None,
    samples: Annotated[int, typer.Option("--n", min=1, help="Responses to each problem.")] = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="The seed that draws and sampled tokens follow from.")
    ] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="The longest response.")] = 2048,
    temperature: Annotated[float, typer.Option(min=0, help="The sampling temperature.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0, max=1, help="Nucleus sampling.")] = 1.0,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Send each problem's text as it is, without the tokenizer's chat template.",
        ),
    ] = False,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Let a senior and a junior answer every problem n times, one line of JSON a response.

    A line is written when its response is finished. The same command goes on where it was stopped
    or killed, and every response has seeds of its own that follow from --seed, its problem and its
    number, so that it does not matter where it stopped; a larger --n adds responses. A file that
    was made with other settings is refused. `tandem replay` and `tandem view` read the file. Exit
    code 1 when a prompt is too long for the model, 130 when interrupted.
    """
    from tandem_plugin.cli.engine_arguments import engine_arguments
    from tandem_plugin.cli.problems import digest, read_prompts
    from tandem_plugin.cli.tokenizers import model_files
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.data.records import record_files
    from tandem_plugin.draws import check_seed
    from tandem_plugin.files import InputFiles
    from tandem_plugin.rollouts.engine import deciding, start_engine
    from tandem_plugin.rollouts.rollout_file import RolloutFile, run_file

    check_seed(seed)
    asked = {"schedule": schedule, "boundaries": boundaries, **assignments("--set", settings or [])}
    config = TandemConfig.from_mapping({**asked, "junior": junior})
    arguments = engine_arguments(engine or [])
    sampling = {"max_tokens": max_tokens, "temperature": temperature, "top_p": top_p}
    listed = read_prompts(problems)
    noted = {
        "tandem_plugin": _version(),
        "senior": _named(senior),
        "junior": _named(junior or senior),
        "schedule": config.schedule,
        "parameters": _parameters(config),
        "boundaries": config.boundaries or config.make_schedule().boundaries,
        "problems": {"count": len(listed), "sha256": digest(listed)},
        "seed": seed,
        **sampling,
        "raw": raw,
        "engine": deciding(arguments),
    }
    places = [(i, j) for i in range(len(listed)) for j in range(samples)]
    models = {"senior": model_files(senior), "junior": model_files(junior or senior)}
    InputFiles(problems=record_files(problems), **models).check_outputs(out, run_file(out))
    with RolloutFile(out, noted) as file:
        todo = [place for place in places if place not in file.done]
        before = len(places) - len(todo)
        skipped: dict[int, str] = {}
        if todo:
            try:
                llm = start_engine(senior, arguments, config.settings())
                _write(_Run(llm, listed, seed, sampling, raw, skipped), file, todo, len(places))
            except KeyboardInterrupt:
                done = len(file.done & set(places))
                typer.echo(
                    f"Stopped: {done:,} of {len(places):,} responses are in {out}. The same "
                    "command goes on from there.",
                    err=True,
                )
                raise typer.Exit(INTERRUPTED) from None
        written = len(file.done & set(places)) - before
    result = {
        "rollouts": str(out),
        "responses": len(places),
        "written": written,
        "found": before,
        "skipped": list(skipped.values()),
    }
    _report(result, json)
    raise typer.Exit(1 if skipped else 0)


class _Run:
    """The requests of a run, and the rows of its responses."""

    def __init__(
        self,
        llm: TandemLLM,
        problems: Sequence[Problem],
        seed: int,
        sampling: dict[str, Any],
        raw: bool,
        skipped: dict[int, str],
    ) -> None:
        self.llm = llm
        self._problems = problems
        self._seed = seed
        self._sampling = sampling
        self._tokenizer = llm.get_tokenizer()
        self._chat = not raw and bool(getattr(self._tokenizer, "chat_template", None))
        self._skipped = skipped
        """Why problems are left out: their prompts are too long for the model."""

    def requests(self, places: Sequence[tuple[int, int]]) -> Iterator[tuple[Any, Any, Any, Any]]:
        """(place, prompt, sampling parameters, tandem seed) of each response."""
        from vllm import SamplingParams

        from tandem_plugin.seeds import derive_seed

        longest = self.llm.llm_engine.model_config.max_model_len
        for problem, sample in places:
            ids = self._prompt_ids(self._problems[problem])
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
        from tandem_plugin.cli.problems import answer, prompt

        (response,) = output.outputs
        asked = self._problems[problem]
        known = answer(asked)
        return {
            "prompt": prompt(asked),
            **({} if known is None else {"answer": known}),
            "response": response.text,
            "finish_reason": response.finish_reason,
            "response_ids": list(response.token_ids),
            "authorship": response.authorship.tolist(),
            "tandem_seed": response.tandem_seed,
            "tandem_fingerprint": response.tandem_fingerprint,
            "tandem_schedule": response.tandem_schedule,
        }

    def _prompt_ids(self, problem: Problem) -> list[int]:
        from tandem_plugin.cli.problems import chat
        from tandem_plugin.rollouts.rollout import RolloutError

        if self._chat:
            ids = self._tokenizer.apply_chat_template(
                chat(problem), add_generation_prompt=True, return_dict=False
            )
        elif problem.raw is not None:
            ids = self._tokenizer.encode(problem.raw)
        else:
            raise RolloutError(
                "The problems are messages of a chat, but the senior's tokenizer has no chat "
                "template or --raw was given: give problems as text."
            )
        return list(ids)


def _write(run: _Run, file: RolloutFile, todo: Sequence[tuple[int, int]], responses: int) -> None:
    """Generate what is to do, a line for each finished response, with a progress bar."""
    from tandem_plugin.rollouts.progress import response_progress

    most = 2 * run.llm.llm_engine.vllm_config.scheduler_config.max_num_seqs
    with response_progress("rollout", responses, responses - len(todo)) as advance:
        for (problem, sample), output in run.llm.stream(run.requests(todo), most):
            file.append(problem, sample, run.row(problem, output))
            advance(len(output.outputs[0].token_ids))


def _parameters(config: Any) -> dict[str, Any]:
    from tandem_plugin.schedules import schedule_parameters

    return schedule_parameters(config.make_schedule())


def _named(model: str) -> str:
    """A model as it is noted: a folder by its whole path, so that another start finds it."""
    return str(Path(model).resolve()) if os.path.exists(model) else model


def _version() -> str:
    from tandem_plugin._version import __version__

    return __version__


def _report(result: dict[str, Any], json: bool) -> None:
    if json:
        print_json(result)
        return
    typer.echo(
        f"{result['rollouts']}: wrote {result['written']:,} responses, found {result['found']:,} "
        f"there, of {result['responses']:,}."
    )
    for sentence in result["skipped"]:
        typer.echo(sentence, err=True)
