"""The generating process: it writes the missing responses of files, and exits with its engine.

This frees the engine's memory for the next pair of models.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from multiprocessing import active_children, get_context
from typing import Any

from tandem_plugin.errors import EngineError, EvaluationError, TandemError
from tandem_plugin.lab.evaluation.generation import (
    TEXT,
    GenerationFile,
    Sampling,
    check_response,
    engine_settings,
    is_complete,
)
from tandem_plugin.lab.evaluation.text_handoff import TextHandoff
from tandem_plugin.lab.rollouts.engine import check_template_args, start_engine, with_images
from tandem_plugin.lab.rollouts.generate import (
    Generator,
    Place,
    Question,
    ResponseSet,
    missing,
    thumbnails,
    write_rows,
)
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile
from tandem_plugin.terminal.processes import end_with_parent


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
        is_complete(
            file.path, file.settings(sampling, engine), len(file.benchmark.problems), samples
        )
        for file in files
    ]
    if all(complete):
        return
    running = set(active_children())
    with ProcessPoolExecutor(1, get_context("spawn"), _enter_process, (os.getpid(),)) as pool:
        try:
            with _uninterrupted():
                answer = pool.submit(_answer, files, sampling, dict(engine))
            answer.result()
        except BrokenProcessPool as error:
            raise EvaluationError("evaluation-engine-vanished") from error
        except KeyboardInterrupt:
            for process in set(active_children()) - running:
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
    end_with_parent(parent)


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
    sets = [response_set(file, sampling) for file in files]
    with ExitStack() as stack:
        opened = [
            stack.enter_context(
                RolloutFile(file.path, file.settings(sampling, engine), check_response)
            )
            for file in files
        ]
        todo = missing(sets, opened)
        together = None
        if first.junior is not None and first.schedule is not None:
            together = {**engine_settings(first.schedule), "junior": first.junior.path}
        most = max(responses.most_images for responses in sets)
        arguments, settings = with_images(engine, together, most)
        started = start_engine(first.senior.path, arguments, settings, sampling.max_tokens)
        template_args = first.benchmark.template_args  # the same for all benchmarks of a command
        check_template_args(started.get_tokenizer(), template_args)
        generator = Generator(
            started,
            sets,
            lambda seed, tokens: sampling.parameters(seed, sampling.budget(tokens)),
            sampling.budget,
            template_args,
        )
        generator.check_prompts(todo)
        handoff = TextHandoff(started, sampling, generator.most, template_args)
        by_token = list(_left_by_text(todo, sets, handoff))
        models = " and ".join(
            checkpoint.name for checkpoint in (first.senior, first.junior) if checkpoint
        )
        rows = chain(generator.rows(by_token), handoff.rows() if together else ())
        write_rows(rows, sets, opened, models, written=generator.written)


def response_set(file: GenerationFile, sampling: Sampling) -> ResponseSet:
    """What a file of responses contains."""
    questions = [
        Question(
            question["messages"],
            {
                "prompt": question["messages"],
                "answer": question["golds"],
                **thumbnails(question.get("images", ())),
            },
            question["golds"],
            question.get("images", ()),
        )
        for question in file.benchmark.questions()
    ]
    seeds = partial(sampling.seeds, file.benchmark.name)
    return ResponseSet(
        file.benchmark.name, questions, sampling.samples, seeds, file.schedule, has_prompt_ids=True
    )


def _left_by_text(
    places: Sequence[Place], sets: Sequence[ResponseSet], handoff: TextHandoff
) -> Iterator[Place]:
    """Give ``handoff`` the responses that are handed over as text; yield the others."""
    for place in places:
        responses = sets[place.file]
        schedule = responses.schedule or {}
        if schedule.get("schedule") != TEXT:
            yield place
            continue
        problem = responses.questions[place.problem]
        question = {"messages": problem.turns, "golds": problem.golds}
        seeds = responses.seeds(place.problem, place.sample)
        handoff.add(place, question, seeds, schedule["rounds"])
