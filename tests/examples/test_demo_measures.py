"""The demo's table, page and picture, from files as ``tandem eval`` writes them."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "demo"))
pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import measures
import pair
from evaluation import GRPO, TANDEM, Score
from page import write_page
from picture import chosen_problem, lines_of, write_picture

from tandem_plugin.lab.evaluation.generation import handovers, schedule_label
from tandem_plugin.lab.evaluation.results import run_folder

STORIES = [
    pair.Story((5, 3, 4, 2), 0, "Mia", "Tom", 0),
    pair.Story((7, 2, 5, 4), 1, "Ana", "Leo", 1),
    pair.Story((4, 3, 3, 5), 2, "Eva", "Ben", 2),
]
LESSON = replace(pair.SENIOR, steps=130)
HANDED_OVER = [schedule_label(schedule) for schedule in handovers(measures.PLACES)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    numbers = pair.split_numbers(100, 11)[0]
    pair.make_tokenizer(pair.texts(LESSON, {}, numbers)).save_pretrained(folder)
    return folder


def worked(story: pair.Story, language: pair.Language, product: int | None = None) -> str:
    """A solution in one language, with another product if it is given."""
    base, count, each, used = story.numbers
    product = count * each if product is None else product
    pairs = [(count, each, product), (base, product, base + product)]
    pairs.append((base + product, used, base + product - used))
    lines = [language.sentence(step, *pairs[step], story.thing) for step in range(3)]
    return "\n\n".join([*lines, f"\\boxed{{{pairs[-1][-1]}}}"])


def evaluated(
    out: Path, tokenizer: Path, senior: str, texts: list[str], continued: list[bool]
) -> measures.Answers:
    """A senior's files: these responses everywhere, both samples alike.

    continued: whether the junior ends each rightly; alone all are right but the last.
    """
    encode = measures._decoder(tokenizer).encode
    for other in ("junior", "reader"):
        for schedule in ("solo", "sentence", *HANDED_OVER):
            folder = run_folder(out, "handoff", senior, other, schedule)
            folder.mkdir(parents=True)
            places = [(n, sample) for n in range(len(texts)) for sample in range(2)]
            right = [n < 2 if schedule == "solo" else continued[n] for n in range(len(texts))]
            rows = [
                {"problem": n, "sample": s, "response_ids": encode(texts[n]).ids} for n, s in places
            ]
            outcomes = ("incorrect", "correct")
            grades = [{"problem": n, "sample": s, "outcome": outcomes[right[n]]} for n, s in places]
            for name, part in (("problems", rows), ("problems.grades", grades)):
                lines = (f"{json.dumps(row)}\n" for row in reversed(part))  # as they finish
                (folder / f"{name}.jsonl").write_text("".join(lines))
    return measures.Answers(out, senior, tokenizer, STORIES)


@pytest.fixture
def both(tmp_path: Path, tokenizer: Path) -> dict[str, measures.Answers]:
    spanish = [worked(story, pair.SPANISH) for story in STORIES]
    english = [worked(story, pair.ENGLISH) for story in STORIES[:2]]
    english.append(worked(STORIES[2], pair.ENGLISH, product=8))
    seniors = {GRPO: (spanish, [True, False, False]), TANDEM: (english, [True, True, False])}
    return {name: evaluated(tmp_path, tokenizer, name, *rows) for name, rows in seniors.items()}


def by_measure(scores: list[Score]) -> dict[str, float]:
    return {score.authors: score.rates.mean() for score in scores}


def test_measures_are_those_of_the_responses(both: dict[str, measures.Answers]) -> None:
    grpo, tandem = (by_measure(measures.scores_of(each, 3, 7)) for each in both.values())
    assert grpo.keys() == measures.ROWS.keys()
    third = pytest.approx(1 / 3)
    assert (grpo["alone"], tandem["alone"]) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert grpo["continued"] == grpo["read"] == grpo["recovered"] == grpo["team"] == third
    assert tandem["continued"] == pytest.approx(2 / 3)
    assert (grpo["English"], tandem["English"]) == (0, 1)
    assert (grpo["products"], tandem["products"]) == (1, pytest.approx(2 / 3))


def test_scores_say_out_of_how_many(both: dict[str, measures.Answers]) -> None:
    scores = measures.scores_of(both[TANDEM], 3, 7)
    samples = {score.authors: score.samples for score in scores}
    assert samples["alone"] == samples["team"] == samples["products"] == 2
    assert samples["continued"] == samples["read"] == samples["recovered"] == 6  # three places
    assert samples["English"] == 6  # three sentences
    assert all(len(score.solved) == len(STORIES) for score in scores)


def test_response_in_neither_language_counts_as_no_english() -> None:
    answer = measures.Answer("Bueno, tres.\n\n", "First, two times", False)
    assert measures.languages(answer) == [None, pair.ENGLISH, None]
    assert not measures.has_right_product(answer, STORIES[0])


def test_table_has_both_methods_and_the_paired_difference(
    both: dict[str, measures.Answers],
) -> None:
    scores = [score for each in both.values() for score in measures.scores_of(each, 3, 7)]
    taught = [replace(score, trained=measures.TAUGHT) for score in scores[: len(measures.ROWS)]]
    heading, *rows = measures.table([*scores, *taught])
    assert heading == ["%", "as taught", "after GRPO", "after tandem", "tandem - GRPO"]
    cells = {row[0]: row[1:] for row in rows}
    assert [*cells] == [*measures.ROWS.values()]
    # Per problem 100 - 100, 100 - 0 and 0 - 0 points.
    assert cells["continued by the junior"] == ["33.3", "33.3", "66.7", "+33.3 ± 33.3"]


def test_what_speaks_against_tandem_is_said_first() -> None:
    def score(trained: str, authors: str, *solved: int) -> Score:
        return Score(trained, 1, 7, authors, "T = 1", 2, solved * 10)

    def verdict(alone: int, continued: int) -> list[str]:
        both = {"alone": alone, "continued": continued}
        scores = [score(GRPO, name, 0, 1, 2) for name in both]
        return measures.verdict([*scores, *(score(TANDEM, n, k, k, k) for n, k in both.items())])

    assert verdict(1, 2) == [
        "Solved alone: 50.0% after tandem, 50.0% after GRPO (+0.0 ± 7.6).",
        "Solved continued by the junior: 100.0% after tandem, 50.0% after GRPO (+50.0 ± 7.6).",
    ]
    assert verdict(0, 2)[0] == (
        "Against tandem: alone, its senior solves less: 0.0% after tandem, 50.0% after GRPO "
        "(-50.0 ± 7.6)."
    )
    against, unshown, *shown = sorted(verdict(0, 1))
    assert (against[:14], unshown[:9], shown) == ("Against tandem", "Not shown", [])
    assert "Against tandem: continued by the junior, its senior solves less" in verdict(2, 0)[0]


def test_table_of_seeds_has_each_seeds_numbers(both: dict[str, measures.Answers]) -> None:
    scores = [score for each in both.values() for score in measures.scores_of(each, 3, 7)]
    other = [replace(score, seed=5, solved=score.solved[::-1]) for score in scores]
    other = [
        replace(score, solved=(0, 0, 0)) if score.trained == TANDEM else score for score in other
    ]
    heading, *rows = measures.table_of_seeds([*scores, *other])
    assert heading == ["GRPO / tandem, %", "seed 5", "seed 7"]
    cells = {row[0]: row[1:] for row in rows}
    assert cells["continued by the junior"] == [
        "33.3 / 0.0 (-33.3 ± 33.3)",
        "33.3 / 66.7 (+33.3 ± 33.3)",
    ]


def test_beginning_ends_where_the_junior_takes_over(both: dict[str, measures.Answers]) -> None:
    for steps, endings in enumerate(both[TANDEM].handed_over("junior", "senior"), 1):
        answer = endings[0][0]
        assert answer.begun + answer.ended == worked(STORIES[0], pair.ENGLISH)
        assert answer.begun.count("\n\n") == answer.begun.count(".") == steps
        assert [by_senior for _, by_senior in lines_of(answer)] == [n < steps for n in range(4)]


def test_page_and_picture_show_the_problem_that_the_junior_ends_one_way(
    both: dict[str, measures.Answers], tmp_path: Path
) -> None:
    assert chosen_problem(both) == 1
    scores = [score for each in both.values() for score in measures.scores_of(each, 3, 7)]
    scores += [replace(score, trained=measures.TAUGHT) for score in scores[: len(measures.ROWS)]]
    write_picture(tmp_path / "demo.svg", scores, both)
    drawn = " ".join(ET.parse(tmp_path / "demo.svg").getroot().itertext())
    for shown in (STORIES[1].problem.text, "✗ wrong", "✓ right", "33.3%", "66.7%"):
        assert shown in drawn, shown
    assert "prefers-color-scheme: dark" in drawn
    write_page(tmp_path / "demo.html", scores, both, 0.25)
    page = " ".join((tmp_path / "demo.html").read_text().split())
    assert "30% of the sums, products and differences are often wrong in English, and 15%" in page
    assert "GRPO</b>, alone, in 3 steps" in page
    assert "In 75% of the training answers a second, frozen model" in page
    assert "each of which trains on about 62% of the words" in page
    assert "Solved alone: 66.7% after tandem, 66.7% after GRPO" in page
    assert page.count("<article>") == 2  # which both solve alone
    assert page.count("<b class=right>") + page.count("<b class=wrong>") == 2 * 2 * 4
    assert page.count("<b class=wrong>") == 3
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
