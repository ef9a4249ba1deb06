from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.cli import app
from tandem_plugin.engine.record import AuthoredRequest, AuthorshipRecord
from tandem_plugin.lab.rollouts import audit
from tandem_plugin.lab.rollouts.rollout import row_digest
from tandem_plugin.terminal.arguments import with_home

Row = dict[str, Any]
MakeRow = Callable[..., Row]
Replay = Callable[..., tuple[int, Any]]

KINDS = ("authorship", "length", "fingerprint", "vocabulary", "malformed")


@pytest.fixture
def make_row(byte_level: Vocabulary) -> MakeRow:
    """A right row of the given length (or tokens), seed and settings."""

    def make(
        length: int = 40, seed: int = 7, tokens: list[int] | None = None, **settings: object
    ) -> Row:
        rule = TandemRules(TandemConfig.from_mapping(settings), byte_level).default
        tokens = tokens or random.Random(seed).choices(range(8), k=length)
        return {
            "response_ids": tokens,
            "authorship": rule.replay(tokens, seed).tolist(),
            "tandem_seed": seed,
            "tandem_fingerprint": rule.fingerprint,
            "text": "not read",
        }

    return make


@pytest.fixture
def replay(tmp_path: Path, tokenizer_file: Path) -> Replay:
    """Run ``tandem replay --json`` on rows (objects, or raw lines); its exit code and result."""

    def run(rows: list[Row | bytes], *options: str) -> tuple[int, Any]:
        file = tmp_path / "rollouts.jsonl"
        file.write_bytes(
            b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in rows)
        )
        arguments = ["replay", str(file), "--tokenizer", str(tokenizer_file), "--json", *options]
        result = CliRunner().invoke(app, arguments)
        assert result.stderr == ""
        return result.exit_code, json.loads(result.stdout)

    return run


def test_rows_that_agree_end_with_code_0(replay: Replay, make_row: MakeRow):
    rows = [make_row(length, seed) for seed, length in enumerate([0, 1, 40, 300])]
    code, found = replay(rows)
    assert code == 0
    assert found["ok"] is True
    assert (found["rows"], found["solo_rows"], found["differing_rows"]) == (4, 0, 0)
    assert found["tokens"] == 341
    senior = sum(sum(row["authorship"]) for row in rows)
    assert found["senior_share"] == senior / 341
    recorded = [row["authorship"] for row in rows]
    changes = [sum(a != b for a, b in zip(r[1:], r, strict=False)) for r in recorded]
    assert found["handoffs_per_response"] == sum(changes) / 4
    assert found["spans_per_response"] == (sum(changes) + 3) / 4
    assert found["differences"] == dict.fromkeys(KINDS, 0)
    assert found["shown"] == []


@pytest.mark.parametrize("position", [0, 17, 39])
def test_changed_token_of_authorship_is_found_with_line_and_position(
    replay: Replay, make_row: MakeRow, position: int
):
    wrong = make_row(seed=3)
    wrong["authorship"][position] ^= 1
    code, found = replay([make_row(), wrong, make_row(seed=5)])
    assert code == 1
    assert found["ok"] is False
    assert found["differing_rows"] == 1
    assert found["differences"]["authorship"] == 1
    (difference,) = found["shown"]
    assert (difference["line"], difference["kind"]) == (2, "authorship")
    assert difference["position"] == position
    assert "1 of 40 tokens differ" in difference["message"]


def test_tokens_of_unknown_author_agree_with_the_segments_and_are_counted_apart(
    replay: Replay, make_row: MakeRow
):
    row = make_row() | {"tandem_unknown": [[5, 9], [39, 40]]}
    code, found = replay([row])
    assert code == 0
    assert (found["tokens"], found["unknown_tokens"]) == (35, 5)
    known = [*range(5), *range(9, 39)]
    assert found["senior_share"] == sum(row["authorship"][i] for i in known) / 35
    row["authorship"][6] ^= 1  # still what the row's seed replays to
    assert replay([row])[0] == 1


def test_rows_all_of_whose_authors_are_unknown_do_not_count_as_matching(
    replay: Replay, make_row: MakeRow
):
    unknown = make_row() | {"tandem_unknown": [[0, 40]]}
    code, found = replay([unknown])
    assert (code, found["ok"], found["rows"], found["unknown_rows"]) == (1, False, 0, 1)
    code, found = replay([unknown, make_row(seed=8)])
    assert (code, found["rows"], found["unknown_rows"], found["tokens"]) == (0, 1, 1, 40)
    assert found["handoffs_per_response"] == replay([make_row(seed=8)])[1]["handoffs_per_response"]
    # A multi-turn row of nothing else, beside tokens that no model wrote; an empty row is known.
    parts = unknown | {"tandem_segments": [[7, 0, 10]], "tandem_unknown": [[0, 4], [4, 10]]}
    parts["authorship"] = [*unknown["authorship"][:10], *[0] * 30]
    assert replay([parts])[1]["unknown_rows"] == 1
    assert replay([make_row(0)])[0] == 0
    unknown["authorship"][3] ^= 1  # still compared
    assert replay([unknown, make_row()])[0] == 1


def test_token_ids_past_the_vocabulary_do_not_count_as_matching(
    replay: Replay, make_row: MakeRow, tmp_path: Path, tokenizer_file: Path
):
    rows = [make_row(tokens=[0, 2, 8, 1]), make_row(), make_row(tokens=[0, 10**6])]
    rows.append({"response_ids": [1, 9], "tandem_seed": None})
    code, found = replay(rows)
    assert (code, found["rows"], found["solo_rows"]) == (1, 1, 0)
    assert found["differences"]["vocabulary"] == 3
    assert [one["line"] for one in found["shown"]] == [1, 3, 4]
    assert "token id 8 is outside" in found["shown"][0]["message"]
    trace = {"token_ids": [0, 8], "model_mask": [1, 1]}
    code, found = replay([trace], "--without-seed")
    assert (code, found["differing_rows"]) == (1, 1)


def test_token_ids_that_pad_a_checkpoints_vocabulary_are_its_own(tmp_path: Path):
    vocabulary = Vocabulary(("a", "Ġb"), "a test")
    for config, expected in (
        ('{"vocab_size": 64}', 64),
        ('{"text_config": {"vocab_size": 32}}', 32),
        ('{"vocab_size": 1}', 2),
        ('{"vocab_size": "64", "text_config": null}', 2),
        ("[", 2),
    ):
        (tmp_path / "config.json").write_text(config)
        assert audit.token_id_count(str(tmp_path), vocabulary) == expected
    assert audit.token_id_count(str(tmp_path / "vocab.json"), vocabulary) == 2


@pytest.mark.parametrize(
    "schedule",
    [
        {"schedule": "word", "\ud800": 1},
        {"\ud800": {}},
        {"schedule": "word", "p": 10**400},
        {"schedule": "word", "cap": [[[[]]]]},
        {"schedule": "word", "drafts": {"1": {"2": []}}, "mode": "speculative"},
        {"schedule": ["word"]},
        {"boundaries": "\ud800"},
        {"self": 1},
        {"schedule": "step", "first": {"a": 1}},
    ],
    ids=repr,
)
def test_row_with_odd_settings_is_told_by_its_line_and_the_rest_is_read(
    replay: Replay, make_row: MakeRow, schedule: Row
):
    code, found = replay([make_row(), make_row() | {"tandem_schedule": schedule}, make_row(seed=5)])
    assert (code, found["rows"], found["differences"]["malformed"]) == (1, 2, 1)
    (difference,) = found["shown"]
    assert difference["line"] == 2
    difference["message"].encode()


def test_changed_token_that_was_a_handoff_is_found(replay: Replay, make_row: MakeRow):
    rows = (make_row(seed=seed, cap=1000, tokens=[0] * 9 + [2] + [0] * 9) for seed in range(99))
    row = next(row for row in rows if len(set(row["authorship"])) == 2)
    assert replay([row], "--set", "cap=1000")[0] == 0
    row["response_ids"][9] = 0
    assert replay([row], "--set", "cap=1000")[0] == 1


def test_each_kind_of_difference_is_counted_and_a_row_once(replay: Replay, make_row: MakeRow):
    cut, foreign, both = make_row(), make_row(), make_row()
    cut["authorship"].pop()
    foreign["tandem_fingerprint"] = both["tandem_fingerprint"] = "0" * 16
    both["authorship"] = [bool(bit) for bit in both["authorship"]]  # booleans are authorship too
    both["authorship"][0] = not both["authorship"][0]
    code, found = replay([cut, foreign, both])
    assert (code, found["differing_rows"]) == (1, 3)
    assert found["differences"] == {"authorship": 1, "length": 1, "fingerprint": 2} | dict.fromkeys(
        ("vocabulary", "malformed"), 0
    )
    assert [d["kind"] for d in found["shown"]] == [
        "length", "fingerprint", "fingerprint", "authorship",
    ]  # fmt: skip


@pytest.mark.parametrize(("others", "said"), [(3, True), (2, False)])
def test_other_rules_in_every_row_are_told_from_a_fault_in_some(
    tmp_path: Path, tokenizer_file: Path, make_row: MakeRow, others: int, said: bool
):
    rows = [make_row() | ({"tandem_fingerprint": "0" * 16} if i < others else {}) for i in range(3)]
    file = tmp_path / "rollouts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = CliRunner().invoke(app, ["replay", str(file), "--tokenizer", str(tokenizer_file)])
    assert done.exit_code == 1
    assert ("pass the run's own --tokenizer" in done.output) is said


def test_rows_carry_their_own_settings(replay: Replay, make_row: MakeRow):
    several = [
        {"schedule": "word", "p": 0.2, "cap": 3},
        {"schedule": "word", "boundaries": "every"},
        {"schedule": "token", "p": 0.9},
        {"schedule": "step", "first": "junior"},
        {"schedule": "junior"},
        {"p": 0.4},
    ]
    rows = [make_row(seed=i, **s) | {"tandem_schedule": s} for i, s in enumerate(several)]
    code, found = replay([*rows, make_row(seed=9)])
    assert (code, found["rows"]) == (0, 7)


def test_options_give_what_rows_do_not_carry(replay: Replay, make_row: MakeRow):
    rows = [
        make_row(seed=1, p=0.2, cap=4),
        make_row(seed=2, p=0.2, cap=9) | {"tandem_schedule": {"cap": 9}},
        make_row(seed=3, schedule="token") | {"tandem_schedule": {"schedule": "token"}},
    ]
    assert replay(rows, "--set", "p=0.2", "--set", "cap=4")[0] == 0
    code, found = replay(rows)
    assert code == 1
    assert found["differences"]["fingerprint"] == 2


def test_response_of_several_turns_is_replayed_segment_by_segment(
    replay: Replay, make_row: MakeRow
):
    """Two turns of the team and, between them, five tokens that no model wrote."""
    first, second = make_row(length=20, seed=1), make_row(length=30, seed=2)
    row = first | {
        "response_ids": first["response_ids"] + [2, 1, 0, 2, 3] + second["response_ids"],
        "authorship": first["authorship"] + [0] * 5 + second["authorship"],
        "tandem_segments": [[1, 0, 20], [2, 25, 55]],
    }
    code, found = replay([row])
    assert (code, found["tokens"]) == (0, 50)
    apart = replay([first, second])[1]
    assert found["spans_per_response"] == 2 * apart["spans_per_response"]
    assert found["senior_share"] == apart["senior_share"]
    row["authorship"][22] = 1
    code, found = replay([row])
    assert code == 1
    assert found["shown"][0]["position"] == 22


def test_engines_record_of_a_response_that_was_cut_agrees_line_by_line(
    replay: Replay, byte_level: Vocabulary, tmp_path: Path
):
    rule = TandemRules(TandemConfig.from_mapping({"cap": 3}), byte_level).default
    record, tokens = AuthorshipRecord(str(tmp_path / "record")), [0, 2, 1, 3, 0, 0, 6, 5, 2, 1]
    for start, stop in ((0, 4), (4, 5), (5, 10)):
        authors = rule.replay(tokens, 7).senior.tolist()[start:stop]
        record.write(AuthoredRequest(rule, 7, tokens[start:stop], authors, prefix=tokens[:start]))
    (file,) = (tmp_path / "record").iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line.get("tandem_prefix_length") for line in lines] == [None, 4, 5]
    code, found = replay(lines)
    assert (code, found["rows"], found["tokens"]) == (0, 3, 4 + 5 + 10)
    lines[2]["authorship"][7] ^= 1
    assert replay(lines)[0] == 1


def test_rows_of_the_senior_alone_are_counted_apart(replay: Replay, make_row: MakeRow):
    rows = [
        make_row(),
        {"response_ids": [1, 2, 3], "tandem_seed": None},
        {"response_ids": [1, 2], "authorship": [1, 1], "tandem_seed": None},
        {"response_ids": [1], "authorship": None, "tandem_seed": None, "tandem_fingerprint": None},
    ]
    code, found = replay(rows)
    assert (code, found["rows"], found["solo_rows"], found["tokens"]) == (0, 1, 3, 40)
    alone = replay(rows[1:])[1]
    assert (alone["senior_share"], alone["spans_per_response"]) == (None, None)


def test_junior_tokens_without_a_seed_are_a_difference(replay: Replay):
    row = {"response_ids": [1, 2], "authorship": [1, 0], "tandem_seed": None}
    code, found = replay([row])
    assert code == 1
    assert found["shown"][0]["position"] == 1


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"\xff\xfe\n", "rollout-not-json"),
        (b'{"response_ids": [1, 2\n', "rollout-not-json"),
        (b"[" * 200_000 + b"\n", "rollout-not-json"),
        (b'{"tandem_seed": ' + b"9" * 5000 + b"}\n", "rollout-not-json"),
        (b"null\n", "rollout-not-object"),
        (b"{}\n", "rollout-field-missing"),
    ],
)
def test_line_that_is_no_row_is_named(replay: Replay, make_row: MakeRow, line: bytes, code: str):
    _, found = replay([make_row(), b"\n", line, make_row(seed=5)])
    assert (found["ok"], found["rows"], found["differences"]["malformed"]) == (False, 2, 1)
    (difference,) = found["shown"]
    assert (difference["line"], difference["kind"]) == (3, "malformed")
    assert code in difference["message"]


MISSING = object()


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("tandem_seed", MISSING, "rollout-field-missing"),
        ("tandem_seed", 2**63, "is out of range"),
        ("tandem_seed", True, "is not an integer"),
        ("response_ids", "12", "rollout-field-invalid"),
        ("response_ids", [1, -5], "rollout-field-invalid"),
        ("response_ids", [2**31], "rollout-field-invalid"),
        ("response_ids", [1, 2.0], "rollout-field-invalid"),
        ("response_ids", [True], "rollout-field-invalid"),
        ("authorship", MISSING, "rollout-field-missing"),
        ("authorship", [2], "rollout-field-invalid"),
        ("tandem_segments", "all", "rollout-field-invalid"),
        ("tandem_segments", [[7, 0]], "rollout-field-invalid"),
        ("tandem_segments", [[7, 0, 1.0]], "rollout-field-invalid"),
        ("tandem_segments", [[7, 0, 41]], "rollout-segment-out-of-range"),
        ("tandem_segments", [[7, 0, 9], [8, 8, 20]], "rollout-segment-out-of-range"),
        ("tandem_segments", [[8, 0, 40]], "rollout-segment-seed-differs"),
        ("tandem_unknown", "all", "rollout-field-invalid"),
        ("tandem_unknown", [[1, 2.0]], "rollout-field-invalid"),
        ("tandem_unknown", [[39, 41]], "rollout-unknown-span-invalid"),
        ("tandem_unknown", [[3, 5], [4, 6]], "rollout-unknown-span-invalid"),
        ("tandem_fingerprint", MISSING, "rollout-field-missing"),
        ("tandem_schedule", "word", "rollout-field-invalid"),
        ("tandem_schedule", {"schedule": "x"}, "plugin-name-unknown"),
        ("tandem_schedule", {"p": 3}, "p=3 is not a probability"),
    ],
)
def test_field_of_a_wrong_type_or_range_is_named(
    replay: Replay, make_row: MakeRow, field: str, value: object, code: str
):
    row = make_row() | {field: value}
    if value is MISSING:
        del row[field]
    exit_code, found = replay([make_row(), row])
    assert exit_code == 1
    (difference,) = found["shown"]
    assert (difference["line"], difference["kind"]) == (2, "malformed")
    assert field in difference["message"] or field == "tandem_seed"
    assert code in difference["message"]


@pytest.mark.parametrize(
    "change", [{"reward": 1.0}, {"more": 1}, {"row_sha256": "0" * 16}, {"row_sha256": None}]
)
def test_row_that_was_edited_is_named_although_its_authorship_matches(
    replay: Replay, make_row: MakeRow, change: dict[str, Any]
):
    row: dict[str, Any] = make_row() | {"reward": 0.0}
    row["row_sha256"] = row_digest(row)
    code, result = replay([row, row | change])
    assert (code, result["differing_rows"]) == (1, 1)
    assert result["differences"]["malformed"] == 1
    (difference,) = result["shown"]
    assert (difference["line"], difference["kind"]) == (2, "malformed")
    assert "[rollout-row-edited]" in difference["message"]
    code, result = replay([row, {name: row[name] for name in reversed(row)}])
    assert (code, result["rows"]) == (0, 2)


def test_differences_are_shown_in_the_order_of_the_lines_up_to_a_limit(
    replay: Replay, make_row: MakeRow
):
    wrong = [make_row(seed=i) | {"tandem_fingerprint": "x"} for i in range(3)]
    code, found = replay([wrong[0], b"?\n", wrong[1], b"?\n", wrong[2]], "--show", "4")
    assert code == 1
    assert found["differing_rows"] == 5
    assert [difference["line"] for difference in found["shown"]] == [1, 2, 3, 4]


def test_batches_of_any_size_find_the_same(
    replay: Replay, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
):
    rows = [make_row(length=10 * i, seed=i, p=(i % 3) / 2) for i in range(12)]
    for i, row in enumerate(rows):
        row["tandem_schedule"] = {"p": (i % 3) / 2}
    rows[5]["authorship"][3] ^= 1
    whole = replay(rows)
    for rows_of_batch in (1, 5):
        monkeypatch.setattr(audit, "BATCH_ROWS", rows_of_batch)
        assert replay(rows) == whole


def test_file_without_rows_is_an_error(replay: Replay):
    code, found = replay([b"\n", b"  \n"])
    assert code == 1
    assert "contains no rollouts" in found["error"]
    assert found["error"].endswith("[rollouts-empty]")


def test_folder_of_dumps_is_replayed_and_differences_are_named_by_file(
    tmp_path: Path, tokenizer_file: Path, make_row: MakeRow
):
    wrong = make_row() | {"tandem_seed": 8}
    for step, rows in {2: [make_row()], 10: [make_row(), wrong]}.items():
        file = tmp_path / "dumps" / f"{step}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["replay", str(tmp_path / "dumps"), "--tokenizer", str(tokenizer_file)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    found = json.loads(result.stdout)
    assert (result.exit_code, found["rows"], found["differing_rows"]) == (1, 3, 1)
    assert (found["shown"][0]["file"], found["shown"][0]["line"]) == ("10.jsonl", 2)
    assert "10.jsonl, line 2, authorship:" in CliRunner().invoke(app, arguments).stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "p"], "option-not-assignment"),
        (["--set", f"p={'[' * 50_000}{']' * 50_000}"], "parameter-not-probability"),
        (["--schedule", "x"], "plugin-name-unknown"),
        (["--boundaries", "x"], "plugin-name-unknown"),
    ],
)
def test_wrong_option_is_an_error(replay: Replay, make_row: MakeRow, options: list[str], said: str):
    code, found = replay([make_row()], *options)
    assert code == 1
    assert said in found["error"]


def test_table_for_people_says_what_was_found(
    tmp_path: Path, tokenizer_file: Path, make_row: MakeRow
):
    file = tmp_path / "rollouts.jsonl"
    wrong = make_row() | {"tandem_fingerprint": "[red]x"}
    file.write_text(json.dumps(make_row()) + "\n" + json.dumps(wrong))
    arguments = ["replay", str(file), "--tokenizer", str(tokenizer_file)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "senior share" in result.stdout
    assert "line 2, fingerprint: The row's fingerprint is '[red]x'" in result.stdout
    assert "Rows that differ from their replay: 1." in result.stdout
    file.write_text(json.dumps(make_row()))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "The authorship of every row matches its replay." in result.stdout


@pytest.mark.parametrize("command", ["replay", "view"])
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("problems.jsonl", '{"problem": "2+2?", "answer": "4"}\n', "contains no rollouts"),
        ("page.html", "<!doctype html>\n<p>1</p>\n", "not JSON"),
        ("empty.jsonl", "", "is empty"),
    ],
)
def test_wrong_file_is_named_before_a_tokenizer_is_missed(
    tmp_path: Path, command: str, name: str, text: str, said: str
):
    file = tmp_path / name
    file.write_text(text)
    result = CliRunner().invoke(app, [command, str(file)])
    assert result.exit_code == 1
    assert said in result.stderr
    assert "--tokenizer" not in result.stderr


@pytest.mark.parametrize("command", ["replay", "show", "view"])
@pytest.mark.parametrize("option", [("--tokenizer", "~/{}"), ("--tokenizer=~/{}",)])
def test_home_is_known_in_every_path_of_a_command(
    command: str, option: tuple[str, ...], tmp_path: Path, tokenizer_file: Path,
    make_row: MakeRow, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    home = tokenizer_file.parent
    monkeypatch.setenv("HOME", str(home))
    (home / "rows.jsonl").write_text(json.dumps(make_row()) + "\n")
    tokenizer = [word.format(tokenizer_file.name) for word in option]
    arguments = [command, "~/rows.jsonl", *tokenizer]
    if command == "view":
        arguments += ["--out", "~/page.html"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert (home / "page.html").exists() == (command == "view")
    assert not Path("~").exists()


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("~", "/h"),
        ("~/a b", "/h/a b"),
        ("--out=~/x", "--out=/h/x"),
        ("base=~/x", "base=/h/x"),
        ("base=a=~/x", "base=a=~/x"),
        ("--senior=base=~/x", "--senior=base=/h/x"),
        ("--senior=base=a=~/x", "--senior=base=a=~/x"),
        ("-o~/x", "-o/h/x"),
        ("-o", "-o"),
        ("a\n=~/x", "a\n=/h/x"),
        ("a~/x", "a~/x"),
        ("~no-such-user-here/x", "~no-such-user-here/x"),
        ("", ""),
    ],
)
def test_home_stands_at_the_beginning_of_a_word_or_of_its_value(
    word: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/h")
    assert with_home(word) == expected


def test_file_from_windows_is_read_as_any_other(replay: Replay, make_row: MakeRow) -> None:
    """With a byte order mark, and with carriage returns before the ends of lines."""
    first, second = (json.dumps(make_row(seed=seed)).encode() for seed in (1, 2))
    code, result = replay([b"\xef\xbb\xbf" + first + b"\r\n", second + b"\r\n", b"\r\n"])
    assert (code, result["rows"], result["differing_rows"]) == (0, 2, 0)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--schedule", "token"], "schedule"),
        (["--set", "p=0.25"], "p"),
        (["--boundaries", "newline"], "boundaries"),
    ],
)
def test_option_that_every_row_overrides_is_an_error(
    replay: Replay, make_row: MakeRow, options: list[str], name: str
):
    recorded = {"schedule": "word", "p": 0.5, "cap": 32, "boundaries": "word"}
    rows = [{**make_row(seed=seed), "tandem_schedule": recorded} for seed in range(3)]
    code, result = replay(list(rows), *options)
    assert code == 1
    assert "[replay-option-overridden]" in result["error"]
    assert f"{name}={recorded[name]!r}" in result["error"]
    same = ["--schedule", "word", "--set", "p=0.5"]
    assert replay(list(rows), *same)[0] == 0
    if name == "p":  # a row without settings takes it
        assert replay([*rows, make_row(p=0.25)], *options)[0] == 0
