"""Prepared problems belong to what they were prepared from."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from made_pictures import picture, stored
from refused import refused

from tandem_plugin.lab.recipes.data import ORIGIN, RunData, data_of, source_of
from tandem_plugin.lab.recipes.settings import Recipe

pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def problems(file: Path, first: int = 0, count: int = 12) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"problem": f"What is {i} and 1?", "answer": str(i + 1)}
        for i in range(first, first + count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def made(base: Path, source: object, **settings: Any) -> RunData:
    data = data_of(Recipe(problems=str(source), **{"heldout": 2, **settings}), base)
    data.prepare()
    return data


def texts(data: RunData) -> set[str]:
    from pyarrow.parquet import read_table

    rows = read_table(data.train).to_pylist()
    return {row["prompt"][-1]["content"].partition("\n")[0] for row in rows}


def test_two_sets_of_one_file_name_never_meet(tmp_path: Path) -> None:
    a = made(tmp_path, problems(tmp_path / "A" / "train.jsonl"))
    b = made(tmp_path, problems(tmp_path / "B" / "train.jsonl", first=100))
    assert a.folder != b.folder
    assert not texts(a) & texts(b)
    assert a.folder.name.startswith("train-")


def test_changed_file_is_prepared_anew_whatever_its_date(tmp_path: Path) -> None:
    source = problems(tmp_path / "mine.jsonl")
    before = made(tmp_path, source)
    problems(source, first=50)
    os.utime(source, (1, 1))  # as of mv, cp -p or rsync -t
    after = made(tmp_path, source)
    assert texts(before).isdisjoint(texts(after))


@pytest.mark.parametrize(
    ("name", "value"), [("heldout", 5), ("heldout", 0), ("reward", ["mine.py:score"])]
)
def test_another_option_is_another_folder(name: str, value: Any, tmp_path: Path) -> None:
    source = problems(tmp_path / "mine.jsonl")
    first, second = made(tmp_path, source), made(tmp_path, source, **{name: value})
    assert first.folder != second.folder
    if name == "heldout":
        assert (second.validation is None) is (value == 0)


def test_images_are_prepared_for_the_recipes_own_trainer_once_they_are_on(tmp_path: Path) -> None:
    from pyarrow.parquet import read_table

    url = "data:image/png;base64," + base64.b64encode(stored(picture())).decode()
    source = tmp_path / "figures.jsonl"
    rows = [{"problem": f"<image>Find {n}.", "answer": n, "images": [url]} for n in range(4)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    contents = {}
    for trainer in ("verl", "trl"):
        data = made(tmp_path, source, trainer=trainer, tandem={"images": True})
        row = read_table(data.train).to_pylist()[0]
        assert [image["bytes"] for image in row["images"]] == [stored(picture())]
        contents[trainer] = row["prompt"][0]["content"]
    assert contents["verl"].startswith("<image>Find")
    assert [part["type"] for part in contents["trl"]] == ["image", "text"]
    data = made(tmp_path, source, trainer="openrlhf", tandem={"images": True})
    assert json.loads(data.train.read_text().splitlines()[0])["images"] == [url]
    with refused("images-unprepared", trainer="SkyRL"):
        made(tmp_path, source, trainer="skyrl", tandem={"images": True})
    with refused("prompt-images-off"):
        made(tmp_path, source)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("reasoning-gym:chain_sum,difficulty=0.5", "reasoning-gym:chain_sum,difficulty=0.7"),
        ("acme/math-v1.1", "acme/math-v1.2"),
        ("acme/math", "other/math"),
        ("acme/math#train", "acme/math#test"),
    ],
)
def test_names_that_share_an_ending_have_folders_of_their_own(
    one: str, other: str, tmp_path: Path
) -> None:
    folders = {data_of(Recipe(problems=name), tmp_path).folder for name in (one, other)}
    assert len(folders) == 2
    assert all(folder.parent == tmp_path / "data" for folder in folders)


def test_same_content_at_another_place_is_the_same_folder(tmp_path: Path) -> None:
    first = made(tmp_path, problems(tmp_path / "mine.jsonl"))
    second = made(tmp_path, problems(tmp_path / "moved" / "mine.jsonl"))
    assert first.folder == second.folder
    before = first.train.stat().st_mtime_ns
    second.prepare()
    assert first.train.stat().st_mtime_ns == before  # nothing is prepared twice


def test_trainers_share_the_folder_of_one_format(tmp_path: Path) -> None:
    source = problems(tmp_path / "mine.jsonl")
    folders = {
        name: made(tmp_path, source, trainer=name).folder for name in ("verl", "trl", "skyrl")
    }
    assert len(set(folders.values())) == 1
    openrlhf = made(tmp_path, source, trainer="openrlhf")
    assert openrlhf.folder not in folders.values()
    assert openrlhf.train.suffix == ".jsonl"


def test_folder_says_what_it_was_prepared_from(tmp_path: Path) -> None:
    data = made(tmp_path, problems(tmp_path / "mine.jsonl"))
    origin = json.loads((data.folder / ORIGIN).read_text())
    assert (origin["source"], origin["heldout"], origin["format"]) == ("mine.jsonl", 2, "parquet")
    assert len(origin["sha256"]) == 64
    assert {"template", "instruction", "tandem-plugin"} <= set(origin)
    assert "mine: 10 rows, checksum " in data.described()
    assert ", 2 held out; " in data.described()


def test_what_the_prompts_do_not_have_is_said(tmp_path: Path) -> None:
    source = problems(tmp_path / "mine.jsonl")
    assert made(tmp_path, source).noticed() == ""
    rows = [json.loads(line) | {"level": 3, "url": "x"} for line in source.open()]
    rows.append(rows[0] | {"answer": "7"})
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = made(tmp_path, source).noticed()
    assert said == "not in the prompts: level, url; contradictions 1"


def test_interrupted_preparation_is_done_again(tmp_path: Path) -> None:
    data = made(tmp_path, problems(tmp_path / "mine.jsonl"))
    (data.folder / ORIGIN).unlink()
    assert not data.is_prepared
    data.train.unlink()
    data.prepare()
    assert data.is_prepared
    data.train.unlink()
    data.prepare()
    assert data.train.exists()


def test_prepared_file_that_was_edited_is_named(tmp_path: Path) -> None:
    data = made(tmp_path, problems(tmp_path / "mine.jsonl"))
    data.train.write_bytes(data.train.read_bytes() + b" ")
    with refused("recipe-data-changed", file=str(data.train)):
        data.prepare()


def test_rows_without_an_answer_are_for_a_reward_of_ones_own(tmp_path: Path) -> None:
    source = tmp_path / "mine.jsonl"
    source.write_text("".join(json.dumps({"problem": f"Write {i}."}) + "\n" for i in range(9)))
    with refused("problem-layout-unknown"):
        made(tmp_path, source)
    own = made(tmp_path, source, reward="mine.py:score")
    assert texts(own) <= {f"Write {i}." for i in range(9)}
    from pyarrow.parquet import read_table

    row = read_table(own.train).to_pylist()[0]
    assert row["reward_model"]["ground_truth"] is None
    assert row["prompt"][-1]["content"].startswith("Write ")
    assert "boxed" not in row["prompt"][-1]["content"]  # no reward looks for one
    made(tmp_path, source, reward="mine.py:score", trainer="openrlhf")


@pytest.mark.parametrize("name", ["nowhere.jsonl", "./nowhere", "~/nowhere-at-all", "/no/where"])
def test_missing_file_of_problems_is_named(name: str, tmp_path: Path) -> None:
    with refused("recipe-file-missing", setting="problems"):
        source_of(name, tmp_path)


def test_mere_word_is_no_source(tmp_path: Path) -> None:
    with refused("problem-source-missing", source="gsm9k"):
        source_of("gsm9k", tmp_path)
    assert source_of("gsm8k", tmp_path) == "gsm8k"


def test_home_and_relative_paths_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems(tmp_path / "mine.jsonl")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("~/mine.jsonl", "mine.jsonl", "./mine.jsonl", "x/../mine.jsonl"):
        assert source_of(name, tmp_path) == str(tmp_path / "mine.jsonl")


def test_own_files_are_taken_as_they_are(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / name).write_text(name)
    own = {"problems": None, "train": "a.parquet"}
    with refused("recipe-train-without-validation"):
        data_of(Recipe(**own), tmp_path)
    assert data_of(Recipe(trainer="trl", **own), tmp_path).validation is None
    with refused("recipe-file-missing", setting="validation"):
        data_of(Recipe(**own, validation="c.parquet"), tmp_path)
    data = data_of(Recipe(**own, validation="b.parquet"), tmp_path)
    data.prepare()
    assert (data.train, data.validation) == (tmp_path / "a.parquet", tmp_path / "b.parquet")
    before = data.marks()
    (tmp_path / "a.parquet").write_text("other")
    assert data.marks() != before


def test_rows_are_read_by_named_fields_or_by_a_function(tmp_path: Path) -> None:
    source = tmp_path / "odd.jsonl"
    rows = [{"task": f"What is {i} and 1?", "result": str(i + 1)} for i in range(9)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.py").write_text(
        "def row(record):\n    return {'problem': record['task'], 'answer': record['result']}\n"
    )
    named = made(tmp_path, source, field={"problem": "task", "answer": "result"})
    mapped = made(tmp_path, source, map="mine.py:row")
    assert texts(named) == texts(mapped)
    assert named.folder != mapped.folder
    (tmp_path / "mine.py").write_text(
        "def row(record):\n    return {'problem': 'So: ' + record['task'], 'answer': '1'}\n"
    )
    edited = made(tmp_path, source, map="mine.py:row")
    assert edited.folder != mapped.folder
    assert all(text.startswith("So: ") for text in texts(edited))
    with refused("recipe-file-missing", setting="map"):
        made(tmp_path, source, map="none.py:row")
    with refused("layout-given-twice"):
        made(tmp_path, source, map="mine.py:row", field={"problem": "task"})
