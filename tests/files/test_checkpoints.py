"""Marks of checkpoints: what they tell apart, and what they cost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem_plugin.files import checkpoints
from tandem_plugin.files.checkpoints import is_checkpoint_of, mark_checkpoint, mark_of

TENSORS = 40
ROWS = 300_000
"""Bytes of a large tensor; a norm has 512."""


def write_model(folder: Path, changed: str | None = None, header: bytes | None = None) -> Path:
    """A checkpoint of 12 MB: 40 large tensors with a norm each; ``changed`` has other contents."""
    folder.mkdir(exist_ok=True)
    content, described = b"", {"__metadata__": {"format": "pt"}}
    for number in range(TENSORS):
        for name, size in ((f"layers.{number}.weight", ROWS), (f"layers.{number}.norm", 512)):
            values = np.random.default_rng((number, size, name == changed)).bytes(size)
            offsets = [len(content), len(content) + size]
            described[name] = {"dtype": "U8", "shape": [size], "data_offsets": offsets}
            content += values
    text = json.dumps(described).encode() if header is None else header
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_bytes(b'{"a": "' + b"x" * 2**23 + b'"}')
    return folder


@pytest.mark.parametrize("kind", ["weight", "norm"])
@pytest.mark.parametrize("number", [0, 17, TENSORS - 1])
def test_update_of_any_tensor_changes_the_mark(tmp_path: Path, kind: str, number: int) -> None:
    mark = mark_checkpoint(write_model(tmp_path / "model"))
    write_model(tmp_path / "model", f"layers.{number}.{kind}")
    assert mark_checkpoint(tmp_path / "model") != mark


def test_mark_is_of_contents_not_of_place_or_time(tmp_path: Path) -> None:
    one, same = write_model(tmp_path / "one"), write_model(tmp_path / "same")
    os.utime(same / "model.safetensors", (1, 1))
    assert mark_checkpoint(one) == mark_checkpoint(same) == mark_of(str(same))
    link = tmp_path / "link"
    link.symlink_to(one)
    assert mark_of(str(link)) == mark_of(str(one))


def test_one_byte_of_a_large_tokenizer_changes_the_mark(tmp_path: Path) -> None:
    mark = mark_checkpoint(write_model(tmp_path))
    tokenizer = tmp_path / "tokenizer.json"
    content = bytearray(tokenizer.read_bytes())
    content[5_000_001] = ord("y")
    tokenizer.write_bytes(content)
    assert mark_checkpoint(tmp_path) != mark


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{",
        b'{"a": 1}',
        b'{"a": {"data_offsets": [5, -9]}, "b": {"data_offsets": [9, 99999999999]}}',
        b'{"a": {"data_offsets": ["x", 1]}}',
    ],
)
def test_weights_with_a_broken_header_have_a_mark(tmp_path: Path, header: bytes) -> None:
    """What reads them says what is wrong; the even parts tell them apart."""
    mark = mark_checkpoint(write_model(tmp_path, header=header))
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    assert mark_checkpoint(tmp_path) != mark


def test_mark_reads_a_small_part_of_large_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file of 8 GiB: what is read does not grow with it."""
    with (tmp_path / "model.bin").open("wb") as file:
        file.truncate(2**33)
    places: list[int] = []
    even = checkpoints._even_parts
    monkeypatch.setattr(
        checkpoints, "_even_parts", lambda size: [places.append(size), *even(size)][1:]
    )
    assert mark_of(str(tmp_path)) is not None
    assert places == [2**33]
    parts = list(even(2**33))
    assert parts[0][0] == 0
    assert sum(parts[-1]) == 2**33


@pytest.mark.parametrize("model", ["", "no such/model at all", "owner/name-of-nothing"])
def test_model_that_is_not_here_has_no_mark(tmp_path: Path, model: str) -> None:
    assert mark_of(model) is None
    assert mark_of(str(tmp_path)) is None  # a folder without a model


def test_name_on_the_hub_is_marked_by_its_commit_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    cache = tmp_path / "models--owner--name"
    for commit in ("a" * 40, "b" * 40):
        (cache / "snapshots" / commit).mkdir(parents=True)
        (cache / "snapshots" / commit / "config.json").write_text("{}")
    (cache / "refs").mkdir()
    whole = hub.try_to_load_from_cache
    monkeypatch.setattr(
        hub, "try_to_load_from_cache", lambda *names: whole(*names, cache_dir=tmp_path)
    )
    for commit in ("a" * 40, "b" * 40):
        (cache / "refs" / "main").write_text(commit)
        assert mark_of("owner/name") == commit


def test_one_folder_by_two_paths_is_one_checkpoint(tmp_path: Any) -> None:
    senior, other = tmp_path / "senior", tmp_path / "other"
    senior.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(senior)
    for name in (senior, f"{senior}/", tmp_path / "link", tmp_path / "other" / ".." / "senior"):
        assert is_checkpoint_of(str(name), str(senior), None)
    assert not is_checkpoint_of(str(other), str(senior), None)
    assert is_checkpoint_of("organisation/name", "organisation/name", "main")
    assert not is_checkpoint_of("organisation/name", "organisation/other", None)
    assert not is_checkpoint_of("organisation/name", str(senior), None)


def test_name_in_the_hubs_cache_is_the_folder_that_vllm_takes_for_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no Hub, vLLM puts the folder for the name before anybody else sees it."""
    import huggingface_hub
    import huggingface_hub.constants

    asked = []

    def cached(name: str, *, revision: str | None, local_files_only: bool) -> str:
        asked.append((name, revision, local_files_only))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached)
    assert is_checkpoint_of("organisation/name", str(tmp_path), "v1")
    assert asked == [("organisation/name", "v1", True)]
