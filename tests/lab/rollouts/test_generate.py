"""One way to generate files of responses, with a stand-in for the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_pictures import picture, stored
from refused import refused

from tandem_plugin import Authorship
from tandem_plugin.lab.data.pictures import read_picture
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

GOLDS = ["2"]


def question(text: str) -> Question:
    return Question([{"role": "user", "content": text}], {"prompt": text, "answer": "2"}, GOLDS)


def responses(*texts: str, samples: int = 1, **more: Any) -> ResponseSet:
    def seeds(problem: int, sample: int) -> tuple[int, int]:
        return 100 * problem + sample, 1000 + 100 * problem + sample

    settings = {"schedule": {}, **more}
    return ResponseSet("sums", list(map(question, texts)), samples, seeds, **settings)


class Engine:
    """Answers each request with its prompt's ids, at once and backwards where it may."""

    scores: Any = None

    def __init__(self, longest: int = 100) -> None:
        scheduler = SimpleNamespace(max_num_seqs=1)
        self.llm_engine = SimpleNamespace(
            vllm_config=SimpleNamespace(scheduler_config=scheduler),
            model_config=SimpleNamespace(max_model_len=longest),
            step=self.step,
        )
        self.sent: list[Any] = []
        self.waiting: list[Any] = []
        self.names = count()

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(encode=lambda text: list(range(len(text))), chat_template=None)

    def answer(self, prompt: Any, tandem: Any) -> Any:
        ids = prompt["prompt_token_ids"]
        return SimpleNamespace(
            text=f"{len(ids)} tokens",
            finish_reason="stop",
            token_ids=tuple(ids[:2]),
            authorship=Authorship([1, 0][: len(ids)]),
            tandem_seed=tandem and tandem["seed"],
            tandem_fingerprint="f",
            tandem_schedule={"schedule": "word"},
            senior_logprobs=self.scores,
            junior_logprobs=self.scores,
        )

    def stream(self, requests: Iterator[Any], most: int) -> Iterator[Any]:
        while some := list(islice(requests, most)):
            self.sent += some
            for place, prompt, _, tandem in reversed(some):
                yield place, SimpleNamespace(outputs=[self.answer(prompt, tandem)])

    def enqueue(self, prompts: list[Any], params: Any, use_tqdm: bool) -> list[str]:
        name = f"{next(self.names)}-of-the-engine"
        self.sent.append((prompts[0], params))
        self.waiting.append((name, prompts[0]))
        return [name]

    def step(self) -> list[Any]:
        assert len(self.waiting) <= 2
        name, prompt = self.waiting.pop()
        number = name.partition("-")[0]
        done = SimpleNamespace(
            finished=True, request_id=number, outputs=[self.answer(prompt, None)]
        )
        return [SimpleNamespace(finished=False), done]


def made(engine: Any, *sets: ResponseSet, room: int = 1, context: int = 99) -> Generator:
    """room, context: a response may have so many tokens, and so many with its prompt."""
    return Generator(
        engine,
        sets,
        lambda seed, tokens: f"{tokens} sampled with {seed}",
        lambda tokens: min(room, context - tokens),
    )


@pytest.mark.parametrize(("room", "fits"), [(1, 9), (7, 3)])
def test_prompt_without_room_for_its_response_is_refused_before_any_request(room: int, fits: int):
    engine = Engine(longest=10)
    generator = made(engine, responses("x" * fits), responses("x", "y" * (fits + 1)), room=room)
    generator.check_prompts([Place(0, 0, 0), Place(1, 0, 0)])
    with refused("problem-too-long", problem=1, name="sums", tokens=fits + 1, room=room):
        generator.check_prompts([Place(0, 0, 0), Place(1, 1, 0)])
    short = made(engine, responses("x" * 4), responses("x" * 5), room=7, context=5)
    short.check_prompts([Place(0, 0, 0)])
    with refused("problem-too-long", tokens=5, room=1, longest=5):
        short.check_prompts([Place(1, 0, 0)])
    assert engine.sent == []


class SeeingEngine(Engine):
    """Reads four tokens for each image, which has one in a prompt that is sent."""

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(chat_template="made", apply_chat_template=self.render)

    def render(self, turns: list[Any], **form: Any) -> list[int]:
        """An id for each part; 9 for an image. A content of text is one part."""
        text = [{"type": "text"}]
        contents = [turn["content"] for turn in turns]
        parts = [part for c in contents for part in (text if isinstance(c, str) else c)]
        return [9 if part["type"] == "image" else 1 for part in parts]

    def _preprocess_cmpl(self, prompts: list[Any]) -> list[Any]:
        (prompt,) = prompts
        images = prompt["multi_modal_data"]["image"]
        if len(images) > 2:
            raise RuntimeError("At most 2 image(s) may be provided in one prompt.")
        ids = [i for i in prompt["prompt_token_ids"] for _ in range(4 if i == 9 else 1)]
        self.cached = [image.size for image in images]
        return [{"prompt_token_ids": ids}]

    def reset_mm_cache(self) -> None:
        del self.cached


def seen(text: str, count: int) -> Question:
    images = [read_picture(stored(picture(size=(8 + n, 8)))) for n in range(count)]
    return Question([{"role": "user", "content": text}], thumbnails(images), GOLDS, images)


def test_images_are_sent_with_their_prompt_and_count_as_the_engine_reads_them():
    engine = SeeingEngine()
    questions = [seen("<image> or <image>?", 2)]
    sets = replace(responses(has_prompt_ids=True), questions=questions)
    assert sets.most_images == 2
    place = Place(0, 0, 0)
    generator = made(engine, sets)
    generator.check_prompts([place])
    assert not hasattr(engine, "cached")  # vLLM would send the engine a reference in their place
    row = dict(generator.rows([place]))[place]
    (_, prompt, params, _) = engine.sent[0]
    assert prompt["prompt_token_ids"] == [9, 1, 9, 1]
    assert [image.size for image in prompt["multi_modal_data"]["image"]] == [(8, 8), (9, 8)]
    assert {image.mode for image in prompt["multi_modal_data"]["image"]} == {"RGB"}
    assert params.startswith("10 sampled")
    assert row["prompt_ids"] == [9] * 4 + [1] + [9] * 4 + [1]
    assert [url[:22] for url in row["images"]] == ["data:image/jpeg;base64"] * 2
    with refused("problem-too-long", tokens=10):
        made(SeeingEngine(longest=10), sets).check_prompts([place])


def test_a_place_in_a_text_is_no_image_unless_the_question_has_one():
    engine = SeeingEngine()
    (text,) = [seen("What does <image> mean?", 0)]
    dict(made(engine, replace(responses(), questions=[text])).rows([Place(0, 0, 0)]))
    ((_, prompt, *_),) = engine.sent
    assert prompt == {"prompt_token_ids": [1]}
    assert text.fields == {}


def test_prompts_with_images_that_no_engine_takes_are_sentences():
    place = Place(0, 0, 0)
    three = replace(responses(), questions=[seen("<image><image><image>", 3)])
    with refused("image-prompt-rejected", problem=0, name="sums"):
        made(SeeingEngine(), three).check_prompts([place])
    base = replace(responses(), questions=[seen("<image>", 1)])
    with refused("image-prompt-without-template"):
        made(Engine(), base).check_prompts([place])


def test_request_has_its_own_seeds_and_the_schedule_of_its_file():
    engine = Engine()
    sets = responses("ab"), responses("abc", "abcd", schedule={"schedule": "step"})
    places = [Place(0, 0, 0), Place(1, 1, 5)]
    rows = dict(made(engine, *sets).rows(places))
    assert engine.sent == [
        (places[0], {"prompt_token_ids": [0, 1]}, "2 sampled with 0", {"seed": 1000}),
        (
            places[1],
            {"prompt_token_ids": [0, 1, 2, 3]},
            "4 sampled with 105",
            {"schedule": "step", "seed": 1105},
        ),
    ]
    assert list(rows) == places[::-1]
    assert list(rows[places[1]].items()) == [
        ("prompt", "abcd"),
        ("answer", "2"),
        ("response", "4 tokens"),
        ("finish_reason", "stop"),
        ("response_ids", [0, 1]),
        ("authorship", [1, 0]),
        ("tandem_seed", 1105),
        ("tandem_fingerprint", "f"),
        ("tandem_schedule", {"schedule": "word"}),
    ]


def test_row_has_the_log_probabilities_that_the_engine_measured():
    engine = Engine()
    engine.scores = np.array([-0.123456, -np.inf], np.float32)
    (row,) = dict(made(engine, responses("ab")).rows([Place(0, 0, 0)])).values()
    assert row["senior_logprobs"] == row["junior_logprobs"] == [-0.1235, None]
    assert json.loads(json.dumps(row, allow_nan=False)) == row


def test_senior_alone_answers_on_vllms_own_engine_with_two_requests_per_slot():
    engine = Engine()
    alone = responses("a", "ab", "abc", schedule=None, has_prompt_ids=True)
    places = [Place(0, problem, 0) for problem in range(3)]
    rows = dict(made(engine, alone).rows(places))
    assert engine.sent[2] == ({"prompt_token_ids": [0, 1, 2]}, "3 sampled with 200")
    assert list(rows) == [places[1], places[2], places[0]]
    assert list(rows[places[2]].items()) == [
        ("prompt", "abc"),
        ("answer", "2"),
        ("response", "3 tokens"),
        ("finish_reason", "stop"),
        ("prompt_ids", [0, 1, 2]),
        ("response_ids", [0, 1]),
        ("tandem_seed", None),
    ]


def test_only_missing_responses_are_in_order_of_file_problem_and_sample(tmp_path: Path):
    sets = responses("a", "b", samples=2), responses("c")
    with (
        RolloutFile(tmp_path / "one.jsonl", {}) as one,
        RolloutFile(tmp_path / "two.jsonl", {}) as two,
    ):
        one.append(0, 1, {})
        one.append(5, 0, {})  # of a problem that is not asked any more
        assert missing(sets, [one, two]) == [
            *(Place(0, 0, 0), Place(0, 1, 0), Place(0, 1, 1)),
            Place(1, 0, 0),
        ]


class Grader:
    """Grades when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.grades: list[Future[Any]] = []

    def submit(self, *response: Any) -> Future[Any]:
        self.asked.append(response)
        self.grades.append(Future())
        return self.grades[-1]

    def decide(self, number: int) -> None:
        grade = SimpleNamespace(reward=1.0, outcome="correct", answer=None, rule="equal")
        self.grades[number].set_result(grade)


def written(path: Path) -> list[tuple[Any, ...]]:
    names = ("problem", "reward", "outcome", "pred", "grading_rule")
    rows = map(json.loads, path.read_text().splitlines())
    return [tuple(row.get(name) for name in names) for row in rows]


def test_graded_rows_are_written_in_order_and_undecided_ones_not_at_all(tmp_path: Path):
    path, grader, one = tmp_path / "one.jsonl", Grader(), responses("a", "b", "c")
    seen = []

    def rows() -> Iterator[tuple[Place, dict[str, Any]]]:
        for problem in range(3):
            yield Place(0, problem, 0), {"response": str(problem), "response_ids": [1]}
            seen.append(len(written(path)))
            if problem == 1:
                grader.decide(0)
        raise RuntimeError("the engine died")

    with RolloutFile(path, {}) as file, pytest.raises(RuntimeError):
        write_rows(rows(), [one], [file], "a test", grader)  # type: ignore[arg-type]
    assert grader.asked == [(str(problem), GOLDS) for problem in range(3)]
    assert seen == [0, 0, 1]
    assert written(path) == [(0, 1.0, "correct", "", "equal")]
    assert [grade.cancelled() for grade in grader.grades] == [False, True, True]


def test_ungraded_rows_are_in_their_files_before_the_next_is_awaited(tmp_path: Path):
    sets = responses("a"), responses("b", "c")
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    seen = []

    def rows() -> Iterator[tuple[Place, dict[str, Any]]]:
        for place in (Place(1, 1, 0), Place(0, 0, 0), Place(1, 0, 0)):
            yield place, {"response": "", "response_ids": []}
            seen.append([[one for one, *_ in written(path)] for path in paths])

    with RolloutFile(paths[0], {}) as first, RolloutFile(paths[1], {}) as second:
        write_rows(rows(), sets, [first, second], "a test")
    assert seen == [[[], [1]], [[0], [1]], [[0], [1, 0]]]


def test_rollouts_seeds_are_those_of_the_run_the_problem_and_the_sample():
    from tandem_plugin.lab.rollouts.run import seeds_of
    from tandem_plugin.seeds import derive_seed

    assert partial(seeds_of, 5)(3, 1) == (
        derive_seed(5, "sampling", 3, 1),
        derive_seed(5, "rollout", 3, 1),
    )
