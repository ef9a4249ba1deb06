"""Pass rates of the senior alone and of the team, in one tandem engine and without a trainer.

A program of its own, so that the engine's memory is free again before training starts::

    python examples/demo/evaluate.py --senior MODEL --junior MODEL --data evaluation.parquet \\
        --out evaluation.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SENIOR_ALONE, TEAM = "senior alone", "team"


class EvaluationError(RuntimeError):
    """The evaluation ended without a result; the message names its log."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How responses are sampled: as in training. Lengths are in tokens."""

    samples: int = 2
    temperature: float = 1.0
    max_prompt_length: int = 96
    max_response_length: int = 72
    seed: int = 7


def evaluate(
    senior: Path, junior: Path, data: Path, out: Path, sampling: Sampling
) -> dict[str, float]:
    """Runs this file as a program, which leaves responses in ``out``; returns the pass rates.

    Raises:
        EvaluationError: the program failed.
    """
    command = [sys.executable, str(Path(__file__).resolve())]
    command += ["--senior", str(senior), "--junior", str(junior), "--data", str(data)]
    command += ["--out", str(out), "--sampling", json.dumps(_settings(sampling))]
    log = out.with_suffix(".log")
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as stream:
        code = subprocess.run(
            command, env=environment, stdout=stream, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code != 0:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise EvaluationError(f"The evaluation ended with code {code}. The end of {log}:\n{end}")
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return {
        author: sum(row["score"] for row in rows if row["authors"] == author)
        / sum(row["authors"] == author for row in rows)
        for author in (SENIOR_ALONE, TEAM)
    }


def generate(senior: Path, junior: Path, data: Path, out: Path, sampling: Sampling) -> None:
    """Samples every problem by the senior alone and by the team; one JSON line a response."""
    import pandas as pd
    from vllm import LLM, SamplingParams

    from tandem_plugin import TandemConfig, TandemRules, Vocabulary
    from tandem_plugin.grading import grade

    engine = LLM(
        str(senior),
        enforce_eager=True,
        dtype="float32",
        max_model_len=sampling.max_prompt_length + sampling.max_response_length,
        max_num_seqs=256,
        gpu_memory_utilization=0.1,
        seed=sampling.seed,
        additional_config={"tandem": {"schedule": "word", "junior": str(junior)}},
    )
    tokenizer = engine.get_tokenizer()
    rules = TandemRules(
        TandemConfig.from_mapping({"schedule": "word"}), Vocabulary.from_tokenizer(tokenizer)
    )
    asked: list[dict[str, Any]] = []
    for problem, row in enumerate(pd.read_parquet(data).to_dict("records")):
        text = tokenizer.apply_chat_template(
            list(row["prompt"]), add_generation_prompt=True, tokenize=False
        )
        for sample in range(sampling.samples):
            for authors in (SENIOR_ALONE, TEAM):
                seed = (sampling.seed << 32) + problem * sampling.samples + sample
                asked.append(
                    {
                        "problem": problem,
                        "authors": authors,
                        "prompt_ids": tokenizer(text).input_ids,
                        "gold": row["reward_model"]["ground_truth"],
                        "tandem_seed": seed if authors == TEAM else None,
                    }
                )
    outputs = engine.generate(
        [{"prompt_token_ids": row["prompt_ids"]} for row in asked],
        [
            SamplingParams(
                temperature=sampling.temperature,
                max_tokens=sampling.max_response_length,
                extra_args=_request(rules, row["tandem_seed"]),
            )
            for row in asked
        ],
        use_tqdm=False,
    )
    with out.open("w", encoding="utf-8") as lines:
        for row, output in zip(asked, outputs, strict=True):
            response = output.outputs[0]
            gold = row.pop("gold")
            row["response_ids"] = list(response.token_ids)
            row["output"] = response.text
            row["score"] = grade(response.text, gold).reward
            if row["tandem_seed"] is not None:
                authorship = rules.default.replay(row["response_ids"], row["tandem_seed"])
                row["authorship"] = authorship.tolist()
                row["tandem_fingerprint"] = rules.fingerprint
            lines.write(json.dumps(row) + "\n")


def _request(rules: Any, seed: int | None) -> dict[str, Any]:
    return {"tandem": "off" if seed is None else rules.default.request(seed).to_wire()}


def _settings(sampling: Sampling) -> dict[str, Any]:
    return {name: getattr(sampling, name) for name in Sampling.__dataclass_fields__}


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name in ("senior", "junior", "data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--sampling", type=json.loads, default={}, help="a JSON object")
    options = parser.parse_args(arguments)
    sampling = Sampling(**options.sampling)
    generate(options.senior, options.junior, options.data, options.out, sampling)
    return 0


if __name__ == "__main__":
    sys.exit(main())
