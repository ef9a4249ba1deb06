from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import struct
from pathlib import Path

import pytest
from refused import refused

from tandem_plugin.boundaries.vocabulary import Vocabulary
from tandem_plugin.errors import ConfigError
from tandem_plugin.files import (
    ForeignLineError,
    WholeLines,
    check_outputs,
    is_number,
    lock_file,
    open_file,
    parse_json,
    read_appended,
    read_file,
    replacing,
    write_file,
)
from tandem_plugin.files.checkpoints import check_model, hub_access
from tandem_plugin.lab.data.records import read_records


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path):
    file = tmp_path / "new/page.html"
    write_file(file, "one")
    file.chmod(0o640)
    interrupted = replacing(file)
    interrupted.__enter__().write_text("two, but not to its e")
    assert not interrupted.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert file.read_text() == "one"
    write_file(file, "two")
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["page.html"]


def test_a_link_stays_a_link_and_what_it_points_at_is_written(tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to("target")
    write_file(link, "one")
    write_file(link, "two")
    assert link.is_symlink()
    assert (tmp_path / "target").read_text() == "two"


@pytest.mark.parametrize("name", ["folder", "pipe", "loop", "x" * 300, "folder/../file/below"])
def test_what_cannot_be_written_is_said(tmp_path: Path, name: str):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.iterdir())
    with refused("file-unwritable"):
        write_file(tmp_path / name, "text")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["folder", "pipe", "loop", "none", "x" * 300])
def test_only_a_regular_file_is_read_and_nothing_is_waited_for(tmp_path: Path, name: str):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=r"\[Errno"):
        open_file(tmp_path / name)


def test_a_file_is_read_through_a_link(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "link") == b"text"


def test_an_input_is_known_under_every_name(tmp_path: Path):
    file = tmp_path / "rollouts.jsonl"
    file.touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "soft").symlink_to(file)
    os.link(file, tmp_path / "hard")
    (tmp_path / "way").symlink_to(tmp_path)
    inputs = {"rollouts": [file], "tokenizer": ["nowhere"]}
    for other in ("rollouts.jsonl", "soft", "hard", "folder/../rollouts.jsonl", "way/hard"):
        with refused("output-overwrites-input"):
            check_outputs(inputs, tmp_path / "new", tmp_path / other)
    check_outputs(inputs, tmp_path / "nowhere", tmp_path / "folder")


@pytest.mark.parametrize(
    "text",
    ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "c": 2, "a": 3}}]', "[" * 200_000, '{"a":' * 200_000,
     b"\xff", b"\xef\xbb\xbf" * 2 + b"{}", b"", b"9" * 5000, b'"\xed\xa0\x80"'],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_json_or_says_a_field_twice_is_refused(text: str | bytes):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_byte_order_mark_and_carriage_returns_of_windows_are_no_part_of_a_json():
    assert parse_json(b'\xef\xbb\xbf{"a": 1}\r\n') == {"a": 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, True), (-1.5, True), (10**308, True), (10**309, False), (-(10**4000), False),
     (float("nan"), False), (float("inf"), False), (True, False), ("1", False), (None, False)],
)  # fmt: skip
def test_a_number_is_what_a_float_can_hold(value: object, expected: bool):
    assert is_number(value) is expected


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/senior").mkdir(parents=True)
    (tmp_path / "models/senior/config.json").write_text("{}")


@pytest.mark.parametrize("given", ["models/senior", "Qwen/Qwen3-0.6B", "gpt2", "s3://bucket/model"])
def test_a_model_may_be_a_folder_an_address_or_a_name_on_the_hub(models: None, given: str):
    check_model(given, "senior")


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("model-missing", "models/senor"),
        ("model-missing", "/no/such/model"),
        ("model-missing", "a/b/c"),
        ("model-missing", "model.json"),
        ("model-without-config", "models"),
    ],
)
def test_what_cannot_be_a_model_is_refused_before_any_engine_starts(
    models: None, code: str, given: str
):
    with refused(code, what="senior", model=given):
        check_model(given, "senior")


LFS_POINTER = f"""version https://git-lfs.github.com/spec/v1
oid sha256:{"4d7a214614ab2935" * 4}
size 11422654
"""


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "pytorch_model.bin"])
def test_checkpoint_cloned_without_git_lfs_is_refused(models: None, name: str):
    Path("models/senior", name).write_text(LFS_POINTER)
    with refused("model-file-unreadable", file=name) as caught:
        check_model("models/senior", "senior")
    assert "git lfs pull" in str(caught.value)


SHARDS = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
INDEX = "model.safetensors.index.json"


def index_of(names: list[str]) -> str:
    return json.dumps({"weight_map": {f"w.{n}": name for n, name in enumerate(names)}})


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ({SHARDS[0]: "", SHARDS[2]: ""}, SHARDS[1]),  # without an index
        ({SHARDS[0]: "", SHARDS[1]: "", INDEX: index_of(SHARDS)}, SHARDS[2]),
        (
            {"a.safetensors": "", INDEX: index_of(["a.safetensors", "b.safetensors"])},
            "b.safetensors",
        ),
        ({INDEX: index_of(SHARDS)}, SHARDS[0]),  # no shard at all
        ({SHARDS[0]: "", INDEX: "{}"}, SHARDS[1]),  # an index that promises nothing
        ({"pytorch_model-00002-of-00002.bin": ""}, "pytorch_model-00001-of-00002.bin"),
    ],
)
def test_checkpoint_that_lacks_a_shard_is_refused(
    models: None, files: dict[str, str], missing: str
):
    for name, content in files.items():
        Path("models/senior", name).write_text(content)
    with refused("model-shard-missing", file=missing, what="senior"):
        check_model("models/senior", "senior")


@pytest.mark.parametrize("left", [1, 40, 80])
def test_weights_that_end_before_their_last_tensor_are_refused(models: None, left: int):
    """As an interrupted copy leaves them."""
    header = {"a": {"dtype": "F32", "shape": [20], "data_offsets": [0, 80]}}
    text = json.dumps(header).encode()
    weights = struct.pack("<Q", len(text)) + text + bytes(80)
    file = Path("models/senior/model.safetensors")
    file.write_bytes(weights)
    check_model("models/senior", "senior")
    file.write_bytes(weights[:-left])
    with refused("model-file-unreadable", file="model.safetensors", what="senior"):
        check_model("models/senior", "senior")


@pytest.mark.parametrize(
    "files",
    [
        dict.fromkeys(SHARDS, "") | {INDEX: index_of(SHARDS)},
        dict.fromkeys(SHARDS, ""),
        {"model.safetensors": "", INDEX: index_of(SHARDS)},  # a stale index
        {"model.safetensors": "", SHARDS[1]: ""},  # a stale shard
        dict.fromkeys(SHARDS, "") | {"consolidated.safetensors": ""},
        {INDEX: "[]"},
        {INDEX: '{"weight_map": [1]}'},
        {"adapter.bin": ""},
    ],
)
def test_checkpoint_that_is_whole_is_accepted(models: None, files: dict[str, str]):
    for name, content in files.items():
        Path("models/senior", name).write_text(content)
    check_model("models/senior", "senior")


def test_folders_beside_the_files_of_a_checkpoint_are_none_of_them(models: None):
    Path("models/senior/evaluation.json").mkdir()
    check_model("models/senior", "senior")


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_problems_cloned_without_git_lfs_are_refused(tmp_path: Path, name: str):
    (tmp_path / name).write_text(LFS_POINTER)
    with refused("file-unreadable") as caught:
        read_records(tmp_path / name)
    assert "git lfs pull" in str(caught.value)


def test_tokenizer_cloned_without_git_lfs_is_refused(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text(LFS_POINTER)
    with refused("tokenizer-unreadable") as caught:
        Vocabulary.from_path(tmp_path / "tokenizer.json")
    assert "git lfs pull" in str(caught.value)


@pytest.mark.parametrize("listens", [True, False])
def test_the_hub_is_asked_only_where_it_can_be_reached(
    monkeypatch: pytest.MonkeyPatch, listens: bool
):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1] if listens else 1
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        failure = lambda reason: ConfigError("model-not-found", model="m", reason=reason)  # noqa: E731
        with refused("model-not-found") as caught, hub_access(failure):
            assert constants.HF_HUB_OFFLINE is not listens
            raise OSError("no such model")
    assert ("no such model" in str(caught.value)) is listens
    assert ("the Hub cannot be reached from here" in str(caught.value)) is not listens
    assert constants.HF_HUB_OFFLINE is False


def test_file_that_is_locked_belongs_to_the_first_until_it_is_closed(tmp_path: Path):
    path = tmp_path / "lock"
    with path.open("ab") as first, path.open("ab") as second:
        assert lock_file(first, path)
        assert not lock_file(second, path)
        first.close()
        assert lock_file(second, path)


@pytest.mark.parametrize(
    ("number", "is_ours"),
    [
        *((number, False) for number in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)),
        *((number, True) for number in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)),
        *((number, True) for number in (errno.EINVAL, errno.EIO)),
    ],
)
def test_file_system_without_locks_is_a_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
    is_ours: bool,
):
    def failing(file: object, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", failing)
    with (tmp_path / "lock").open("ab") as file:
        assert lock_file(file, tmp_path / "run") is is_ours
    assert [str(tmp_path / "run") in text for text in caplog.messages] == [True] * is_ours
    assert os.strerror(number) in caplog.text or not is_ours


BEGIN = b'{"n": '
LINE = b'{"n": 1}\n'


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"\0",
        b"\0" * 5000,
        b'{"n": 2',
        b'{"n": 2' + b"\0" * 9,
        b'{"n' + b"\0" * 9,
        b"\0" * 9 + b"2}",
    ],
)
def test_what_a_loss_of_power_leaves_behind_whole_lines_is_torn(tmp_path: Path, tail: bytes):
    path = tmp_path / "rows"
    path.write_bytes(LINE * 2 + tail)
    assert read_appended(path, BEGIN, parse_json) == WholeLines(len(LINE) * 2, True)


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"\0\n" + LINE, 1), (LINE + b"\0\0" + LINE + LINE, 2), (LINE + b"other", 2), (b"\0\n", 1)],
)
def test_whole_lines_that_nobody_wrote_are_not_torn(tmp_path: Path, content: bytes, line: int):
    path = tmp_path / "rows"
    path.write_bytes(content)
    with pytest.raises(ForeignLineError) as error:
        read_appended(path, BEGIN, parse_json)
    assert error.value.line == line


def test_content_is_on_the_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stored: list[bytes] = []

    def fsync(descriptor: int) -> None:
        stored.append(os.pread(descriptor, 99, 0))
        assert not path.exists()
        raise OSError(errno.EINVAL, "a file system that has none")

    path = tmp_path / "note.json"
    monkeypatch.setattr(os, "fsync", fsync)
    write_file(path, "{}")
    assert (stored, path.read_text()) == ([b"{}"], "{}")


def test_content_that_cannot_be_stored_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "note.json"
    path.write_text("before")
    monkeypatch.setattr(os, "fsync", fsync)
    with refused("file-unwritable"):
        write_file(path, "{}")
    assert path.read_text() == "before"
    assert sorted(tmp_path.iterdir()) == [path]
