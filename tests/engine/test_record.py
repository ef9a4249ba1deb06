"""The engine's own record: what it says of responses that were written in one or more requests."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

import pytest
from algorithm_1 import boundary_set

from tandem_plugin import TandemConfig, make_schedule
from tandem_plugin.engine.record import AuthoredRequest, AuthorshipRecord, Recorder
from tandem_plugin.engine.runners.v1.authors import BatchAuthors
from tandem_plugin.rules import Rule

RULE = Rule(make_schedule("word", {"cap": 2}), boundary_set({1, 5}), "f" * 16)
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


def written(folder: Path, *cuts: int, junior: str | None = None) -> list[dict[str, Any]]:
    """The lines of a response that was cut there."""
    record, batch = AuthorshipRecord(str(folder), junior), BatchAuthors(1, 20)
    for start, stop in zip((0, *cuts), (*cuts, len(TOKENS)), strict=True):
        request = AuthoredRequest(RULE, 7, [], prefix=TOKENS[:start])
        batch.add(0, request, 19 - start)
        for token in TOKENS[start:stop]:
            batch.next_authors(1)
            request.output.append(token)
        batch.remove(0)
        record.write(request)
    (file,) = folder.iterdir()
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_response_of_one_request_is_one_line(tmp_path: Path):
    assert written(tmp_path) == [
        {
            "tandem_seed": 7,
            "tandem_fingerprint": "f" * 16,
            "tandem_schedule": RULE.settings(),
            "response_ids": TOKENS,
            "authorship": RULE.replay(TOKENS, 7).tolist(),
        }
    ]


def test_every_line_says_the_engines_junior(tmp_path: Path):
    lines = written(tmp_path, 4, junior="models/base")
    assert [line["tandem_junior"] for line in lines] == ["models/base"] * 2


@pytest.mark.parametrize("cuts", [(1,), (4, 7), (10,)])
def test_every_line_of_a_cut_response_is_whole_and_says_what_came_before(
    tmp_path: Path, cuts: tuple[int, ...]
):
    lines = written(tmp_path, *cuts)
    assert [line.get("tandem_prefix_length", 0) for line in lines] == [0, *cuts]
    assert [len(line["response_ids"]) for line in lines] == [*cuts, len(TOKENS)]
    for line in lines:
        ids = line["response_ids"]
        assert ids == TOKENS[: len(ids)]
        assert line["authorship"] == RULE.replay(ids, 7).tolist()


class Batch(Recorder):
    def __init__(self, folder: Path, seeds: list[int], record: bool = True) -> None:
        self.seeds = seeds
        self.itself = self  # as in an engine: only the collector of cycles ends it
        settings = {"record": str(folder)} if record else {}
        self._open_record(TandemConfig.from_mapping({"schedule": "word", **settings}))

    def _record_left(self) -> None:
        while self.seeds:
            assert self._record is not None
            request = AuthoredRequest(RULE, self.seeds.pop(), [3], [True])
            self._record.write(request)


def left(folder: Path) -> list[int]:
    return [
        json.loads(line)["tandem_seed"]
        for file in folder.iterdir()
        for line in file.read_text().splitlines()
    ]


def test_what_is_left_of_a_batch_is_recorded_when_it_is_deleted(tmp_path: Path) -> None:
    batch = Batch(tmp_path, [1, 2])
    assert left(tmp_path) == []
    del batch
    gc.collect()
    assert left(tmp_path) == [2, 1]


def test_batch_of_a_forked_process_is_not_recorded_twice(tmp_path: Path) -> None:
    batch = Batch(tmp_path, [1, 2])
    if (child := os.fork()) == 0:
        batch.__del__()
        os._exit(0)
    os.waitpid(child, 0)
    assert left(tmp_path) == []
    batch.seeds.clear()


def test_batch_without_a_record_leaves_nothing(tmp_path: Path) -> None:
    seeds = [1]
    batch = Batch(tmp_path, seeds, record=False)
    del batch
    gc.collect()
    assert (seeds, left(tmp_path)) == ([1], [])
