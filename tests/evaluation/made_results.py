"""Results of seniors made from little, and what `tandem compare` says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.evaluation.drift import kl_divergence, token_counts, write_counts
from tandem_plugin.lab.evaluation.results import run_folder, write_summary


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def found_tables(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return {table["name"]: table for table in json.loads(done.stdout)["tables"]}


def texts(table: Any) -> list[list[str]]:
    return [[cell["text"] for cell in row] for row in table["rows"]]


def write_alone(out: Path, senior: str, right: list[int]) -> None:
    rows = [{"problem": i, "samples": 4, "correct": c} for i, c in enumerate(right)]
    content = {"senior": {"name": senior}, "settings": {}, "benchmarks": {"A": rows}}
    write_summary(run_folder(out, "solo", senior), "solo", content)


def write_handoff(out: Path, senior: str, junior: str, right: list[int]) -> None:
    rows = [{"problem": i, "samples": 4, "correct": c} for i, c in enumerate(right)]
    content = {
        "senior": {"name": senior},
        "junior": {"name": junior},
        "settings": {"schedule": {"schedule": "step"}, "junior": junior},
        "benchmarks": {"A": rows},
    }
    write_summary(run_folder(out, "handoff", senior, junior, "step"), "handoff", content)


def write_legibility(
    out: Path, senior: str, junior: str, nats: list[float], tokens: list[int] | None = None
) -> None:
    rows = [
        {"problem": i, "tokens": tokens[i] if tokens else 9, "cross_entropy": n, "overlap": 1 - n}
        for i, n in enumerate(nats)
    ]
    content = {
        "senior": {"name": senior},
        "junior": {"name": junior},
        "settings": {"junior": junior},
        "benchmarks": {"A": rows},
    }
    write_summary(run_folder(out, "legibility", senior, junior), "legibility", content)


def write_drift(
    out: Path, senior: str, wrote: list[int], junior: list[int], over: tuple[Any, ...] = ()
) -> None:
    folder = run_folder(out, "drift", senior, "base")
    write_counts(folder, *(token_counts([ids], 6) for ids in (wrote, junior)))
    content = {
        "senior": {"name": senior},
        "junior": {"name": "base"},
        "settings": {"smoothing": 0.5, "frequent": 1},
        "metrics": {
            "kl": {"GRPO": 0.5, "TRL": 0.25, "TRL-2": 0.75, "base": 0.0}[senior],
            "mean_absolute_log_ratio": 0.125,
            "over_emitted": [
                {"token": t, "piece": p, "log_ratio": 1.5, "senior": 4, "junior": 0}
                for t, p in over
            ],
        },
        "benchmarks": {},
    }
    write_summary(folder, "drift", content)


def write_counted(out: Path, senior: str, wrote: Any, junior: Any) -> None:
    """A drift run with these counts, ``[vocabulary]``."""
    folder = run_folder(out, "drift", senior, "base")
    write_counts(folder, wrote, junior)
    content = {
        "senior": {"name": senior},
        "junior": {"name": "base"},
        "settings": {"smoothing": 0.5, "frequent": 1},
        "metrics": {
            "kl": kl_divergence(wrote, junior),
            "mean_absolute_log_ratio": 0.125,
        },
        "benchmarks": {},
    }
    write_summary(folder, "drift", content)


def edit(path: Path, change: Callable[[Any], object]) -> None:
    """Change what a JSON file holds."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


PIECES = ["a", "Ġb", "Ċ", "c"]


def write_tokenizer(folder: Path) -> Path:
    """A folder with a tokenizer of four pieces."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    core = Tokenizer(models.BPE({piece: i for i, piece in enumerate(PIECES)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    folder.mkdir(parents=True, exist_ok=True)
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )
    return folder


def write_solo(
    out: Path, senior: str, model: Path, responses: list[list[list[int]]], **changed: Any
) -> None:
    """A solo run with these responses, by problem and sample.

    changed: its fingerprint, its seed, or another setting of its sampling.
    """
    mark = changed.pop("fingerprint", senior)
    sampling = {"samples": len(responses[0]), "temperature": 0.6, "seed": 0, **changed}
    folder = run_folder(out, "solo", senior)
    rows = [{"problem": i, "samples": len(r), "correct": 0} for i, r in enumerate(responses)]
    content = {
        "senior": {"name": senior, "path": str(model), "fingerprint": mark},
        "settings": {"sampling": sampling},
        "benchmarks": {"sums": rows},
    }
    write_summary(folder, "solo", content)
    lines = [
        {
            "problem": i, "sample": j, "prompt_ids": [], "response_ids": ids, "response": "",
            "answer": [],
        }
        for i, found in enumerate(responses)
        for j, ids in enumerate(found)
    ]  # fmt: skip
    (folder / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
