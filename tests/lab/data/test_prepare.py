from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_pictures import picture, stored
from refused import refused
from typer.testing import CliRunner

from tandem_plugin import __version__
from tandem_plugin.cli import app
from tandem_plugin.grading import grade
from tandem_plugin.lab.data import (
    INSTRUCTION,
    Problem,
    ProblemSet,
    PromptTemplate,
    layout_of,
    preparation,
    prepare,
    read_problems,
)
from tandem_plugin.lab.data.duplicates import words_of
from tandem_plugin.lab.data.pictures import read_picture
from tandem_plugin.lab.data.preparation import Trainer, checksum, split


def asked(row: int, text: str, *golds: str) -> Problem:
    return Problem(row, ({"role": "user", "content": text},), golds or ("1",))


def a_set(count: int = 20) -> ProblemSet:
    return ProblemSet("sums", tuple(asked(i, f"Add {i} and 2.", str(i + 2)) for i in range(count)))


def test_verl_reads_parquet_with_chat_and_gold(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    prepared = prepare(a_set(3), "verl", tmp_path)
    rows = parquet.read_table(prepared.files["train"]).to_pylist()
    assert rows[1] == {
        "data_source": "sums",
        "prompt": [{"content": f"Add 1 and 2.\n{INSTRUCTION}", "role": "user"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "3"},
        "extra_info": {
            "index": 1,
            "split": "train",
            "row": 1,
            "problem": f"Add 1 and 2.\n{INSTRUCTION}",
        },
    }


def a_set_with_images() -> ProblemSet:
    images = [read_picture(stored(picture(size=(n, 8)))) for n in (8, 9)]
    return ProblemSet(
        "figures",
        (
            replace(asked(1, "Is <image> like <image>?", "no"), images=tuple(images)),
            replace(asked(2, "<image>Find x.", "3"), images=(images[0],)),
            asked(3, "What does <image> mean in HTML?", "nothing"),
        ),
    )


@pytest.mark.parametrize("trainer", ["verl", "trl"])
def test_images_are_kept_as_the_trainers_data_sets_have_them(tmp_path: Path, trainer: Trainer):
    datasets = pytest.importorskip("datasets")
    problems = a_set_with_images()
    prepared = prepare(problems, trainer, tmp_path)
    files = str(prepared.files["train"])
    rows = datasets.load_dataset("parquet", data_files=files, split="train",
                                 cache_dir=str(tmp_path / "cache"))  # fmt: skip
    sizes = [[image.size for image in row["images"]] for row in rows]  # decoded, as PIL's
    assert sizes == [[(8, 8), (9, 8)], [(8, 8)], []]
    assert (prepared.contents["images"], prepared.contents["trainer"]) == (3, trainer)
    content = rows[0]["prompt"][0]["content"]
    if trainer == "verl":
        assert content == f"Is <image> like <image>?\n{INSTRUCTION}"
    else:
        texts = [part.get("text") for part in content if part["type"] == "text"]
        assert [part["type"] for part in content] == ["text", "image", "text", "image", "text"]
        assert texts == ["Is ", " like ", f"?\n{INSTRUCTION}"]
        (only,) = rows[2]["prompt"][0]["content"]
        assert only["text"].startswith("What does <image> mean")
    # As tandem eval reads it, but for the place in a text that has no image.
    read = read_problems(prepared.files["train"], bad_rows="skip")
    assert [p.images for p in read.problems[:2]] == [p.images for p in problems.problems[:2]]
    assert read.problems[1].text == f"<image>Find x.\n{INSTRUCTION}"


def test_other_pixels_are_another_checksum_and_texts_have_their_own(tmp_path: Path):
    pytest.importorskip("pyarrow")
    problems = a_set_with_images()
    first, *rest = problems.problems
    turned = replace(first, images=first.images[::-1])
    sums = {
        checksum([first, *rest]),
        checksum([turned, *rest]),
        checksum([replace(first, images=()), *rest]),
    }
    assert len(sums) == 3
    prepared = prepare(a_set(3), "trl", tmp_path)
    assert prepared.contents["trainer"] == "verl"
    assert "images" not in prepared.contents


def test_openrlhf_gets_images_in_its_lines_and_turns_in_parts(tmp_path: Path):
    problems = a_set_with_images()
    prepared = prepare(problems, "openrlhf", tmp_path)
    rows = [json.loads(line) for line in prepared.files["train"].read_text().splitlines()]
    parts = [[part["type"] for part in row["input"][0]["content"]] for row in rows]
    assert parts == [["text", "image", "text", "image", "text"], ["image", "text"], ["text"]]
    assert rows[0]["input"][0]["content"][0]["text"] == "Is "  # OpenRLHF would strip a text's
    assert [len(row["images"]) for row in rows] == [2, 1, 0]
    assert all(url.startswith("data:image/png;base64,") for url in rows[0]["images"])
    read = read_problems(prepared.files["train"], bad_rows="skip")
    assert [p.images for p in read.problems[:2]] == [p.images for p in problems.problems[:2]]
    texts = prepare(a_set(2), "openrlhf", tmp_path / "texts").files["train"].read_text()
    assert "images" not in texts


def test_skyrl_gets_no_images(tmp_path: Path):
    with refused("images-unprepared", name="figures", trainer="SkyRL"):
        prepare(a_set_with_images(), "skyrl", tmp_path)
    assert not list(tmp_path.iterdir())


def test_reading_images_needs_pillow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with refused("images-need-pillow"):
        read_picture(b"x")


def test_several_golds_make_a_column_of_lists_for_verl(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    problems = ProblemSet("two", (asked(1, "A?", "1", "2"), asked(2, "B?", "3")))
    prepared = prepare(problems, "verl", tmp_path)
    rows = parquet.read_table(prepared.files["train"]).to_pylist()
    assert [row["reward_model"]["ground_truth"] for row in rows] == [["1", "2"], ["3"]]


def test_labels_for_openrlhf_are_lists_only_where_a_problem_has_several_golds(tmp_path: Path):
    several = ProblemSet("two", (asked(1, "A?", "1", "2"), asked(2, "B?", '["A", "C"]')))
    one_each = ProblemSet("two", (asked(1, "A?", "[3,4)"), asked(2, "B?", '["A", "C"]')))
    labels = []
    for name, problems in (("several", several), ("one", one_each)):
        prepared = prepare(problems, "openrlhf", tmp_path / name)
        rows = [json.loads(line) for line in prepared.files["train"].read_text().splitlines()]
        labels.append([row["label"] for row in rows])
        assert rows[0]["input"] == [{"role": "user", "content": f"A?\n{INSTRUCTION}"}]
        read = read_problems(prepared.files["train"]).problems  # as tandem eval reads it
        assert [one.golds for one in read] == [one.golds for one in problems.problems]
    assert labels == [[["1", "2"], ['["A", "C"]']], ["[3,4)", '["A", "C"]']]


@pytest.mark.parametrize("trainer", ["verl", "openrlhf"])
def test_the_same_settings_give_the_same_files(tmp_path: Path, trainer: str):
    pytest.importorskip("pyarrow")
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        prepare(a_set(), trainer, folder, heldout=5, seed=3)  # type: ignore[arg-type]
    first, second = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders)
    assert first == second
    assert len(first) == 3
    with refused("heldout-too-many"):
        split(a_set().problems, 20, 0)


def test_held_out_problems_depend_on_the_seed_and_not_on_order_and_repeated_ones_stay_together():
    problems = list(a_set().problems)
    parts, _ = split(problems, 5, seed=1)
    turned, _ = split(problems[::-1], 5, seed=1)
    other, _ = split(problems, 5, seed=2)
    names = lambda part: {one.text for one in part}  # noqa: E731
    assert names(parts["heldout"]) == names(turned["heldout"]) != names(other["heldout"])
    assert len(parts["train"]) == 15
    doubled, duplicates = split([*problems, *problems], 5, seed=1)
    assert (duplicates, len(doubled["heldout"])) == (20, 10)
    for one in (parts, doubled):
        trained, held_out = ({words_of(p) for p in one[name]} for name in ("train", "heldout"))
        assert not trained & held_out


def test_the_manifest_says_what_was_written_and_of_what(tmp_path: Path):
    prepared = prepare(a_set(), "openrlhf", tmp_path, heldout=4, seed=9)
    manifest = json.loads(prepared.manifest.read_text())
    assert manifest == prepared.contents
    assert (manifest["tandem_plugin"], manifest["source"]) == (__version__, None)
    assert manifest["rows"] == {"train": 16, "heldout": 4}
    assert manifest["seed"] == 9
    assert manifest["checksums"] == prepared.checksums
    assert manifest["instruction"] == INSTRUCTION
    assert (manifest["template"], manifest["system"]) == ("{problem}\n{instruction}", None)


def test_the_manifest_identifies_its_source_by_content(tmp_path: Path):
    content = b'{"q": "Add.", "a": 3}\n'
    layout = layout_of(["problem=q", "answer=a"])
    sources = []
    for folder in ("A", "B"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "train.jsonl"
        file.write_bytes(content if folder == "A" else content.replace(b"3", b"4"))
        problems = read_problems(file, layout=layout)
        sources.append(prepare(problems, "trl", tmp_path / folder / "out").contents["source"])
    digest = hashlib.sha256(content).hexdigest()
    fields = {"problem": "q", "answer": "a"}
    assert sources[0] == {
        "name": "train.jsonl",
        "sha256": {"train.jsonl": digest},
        "fields": fields,
    }
    assert sources[1]["sha256"] != sources[0]["sha256"]


@pytest.mark.parametrize("trainer", ["verl", "trl", "skyrl"])
def test_three_trainers_read_the_same_files(tmp_path: Path, trainer: Trainer):
    pytest.importorskip("pyarrow")
    prepared = prepare(a_set(), trainer, tmp_path, heldout=4)
    assert {file.suffix for file in prepared.files.values()} == {".parquet"}
    assert prepared.contents["trainer"] == "verl"
    assert prepare(a_set(), "verl", tmp_path, heldout=4).replaced is None


UNREADABLE = ("She sold 72 clips.", "5 because of reasons", r"\boxed{5", "A) 5, B) 6", "1" * 9999)


def test_golds_that_the_grader_cannot_read_are_counted_by_row(tmp_path: Path):
    pytest.importorskip("sympy")
    rows = [{"problem": f"{i}?", "answer": answer} for i, answer in enumerate(("3", *UNREADABLE))]
    rows += [{"problem": "or?", "answer": ["6", "about 5"]}, {"problem": "!", "answer": "(1, 2)"}]
    file, out = tmp_path / "a.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["data", "prepare", str(file), "--to", "openrlhf", "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "golds that the grader cannot read: 6" in done.stdout
    assert "row 2: 'She sold 72 clips.'" in done.stdout
    unreadable = json.loads((out / "manifest.json").read_text())["unreadable_golds"]
    assert [gold["row"] for gold in unreadable] == [2, 3, 4, 5, 6, 7]
    assert max(len(gold["gold"]) for gold in unreadable) == 200
    for row in rows:
        outcome = grade(r"\boxed{4}", row["answer"]).outcome
        assert (outcome == "error") == (rows.index(row) + 1 in range(2, 8))
    done = CliRunner().invoke(app, [*command, "--json"])
    assert json.loads(done.stdout)["unreadable_golds"] == unreadable


def test_the_same_text_with_another_answer_is_counted(tmp_path: Path):
    first, second, *others = a_set().problems
    again = (replace(first, golds=("another",)), replace(first, golds=first.golds), second)
    doubled = ProblemSet("set", (first, second, *others, *again))
    contents = prepare(doubled, "openrlhf", tmp_path).contents
    assert (contents["duplicates"], contents["contradictions"]) == (3, 1)


def test_problems_that_were_held_out_do_not_stay_beside_a_training_set_that_has_them(
    tmp_path: Path,
):
    held_out = prepare(a_set(), "openrlhf", tmp_path, heldout=3)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with refused("heldout-would-be-trained"):
        prepare(a_set(), "openrlhf", tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    held_out.files["heldout"].unlink()
    assert prepare(a_set(), "openrlhf", tmp_path).rows == {"train": 20}


def test_text_that_parquet_cannot_hold_is_named(tmp_path: Path):
    pytest.importorskip("pyarrow")
    problems, template = [asked(1, "\ud800", "1")], PromptTemplate()
    with refused("parquet-unwritable", name="train"):
        preparation._write_verl("sums", "train", problems, tmp_path / "x", template)
