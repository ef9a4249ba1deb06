"""Which problems a run of OpenRLHF sees."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from refused import refused

from tandem_plugin.lab.recipes.choose_problems import chosen, write_chosen


def test_a_run_sees_each_problem_as_often_as_any_other() -> None:
    lines = [str(i) for i in range(10)]
    found = chosen(lines, 24)
    assert sorted(found[:10]) == sorted(found[10:20]) == lines
    assert found[:10] != found[10:20]
    assert set(Counter(found).values()) == {2, 3}
    assert found == chosen(lines, 24)
    assert len(set(chosen(lines, 4))) == 4


def test_lines_are_written_as_they_are(tmp_path: Path) -> None:
    """A line separator of Unicode within a problem ends no line."""
    source, out = tmp_path / "train.jsonl", tmp_path / "problems.jsonl"
    source.write_text('{"input": "a\u2028b"}\n\n{"input": "c"}\n', encoding="utf-8")
    write_chosen(str(source), "4", str(out))
    written = out.read_text(encoding="utf-8").split("\n")
    assert Counter(written) == {'{"input": "a\u2028b"}': 2, '{"input": "c"}': 2, "": 1}


def test_file_without_problems_is_refused(tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing.jsonl", tmp_path / "empty.jsonl"
    with refused("problem-file-missing", path=str(missing)):
        write_chosen(str(missing), "4", str(tmp_path / "out"))
    empty.write_text("\n")
    with refused("problem-set-empty", name=str(empty), first=""):
        write_chosen(str(empty), "4", str(tmp_path / "out"))
