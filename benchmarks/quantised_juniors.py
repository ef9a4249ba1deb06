"""What quantising a junior changes: ``python benchmarks/quantised_juniors.py MODEL``.

MODEL is a folder that ``examples/real_model.py`` made, taught with ``--held-out 64``; or any other
with ``--set FILE``, problems that ``tandem data prepare`` wrote, such as the demo's. The same model
in each form reads what the model in float32 wrote, by the scoring of ``tandem eval legibility``,
and answers the sums that were held out. Hugging Face computes with the matrices that a form stands
for and rounds the inputs of linear layers as it does: the engine's tests hold it to the same.
Nulls: float32 itself, bfloat16, and a second seed of everything that is drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "examples"), str(ROOT / "integration_tests")]
HELD_OUT, TOKENS, SEEDS = 64, 40, (1, 2)
SCORED = 32
"""Problems of which responses are read, one per problem and seed."""
TEMPERATURE = 0.6
"""Of the answers that are graded; those that are read have 1, like rollouts."""


def quantised(name: str) -> Callable[[Any], None]:
    """Gives a model the matrices and the inputs of a form."""
    from support.quantised import FORMS, as_stored

    return lambda model: as_stored(FORMS[name], model)


JUNIORS: Mapping[str, Callable[[Any], Any]] = {
    "float32": lambda model: model,
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "fp8": quantised("fp8"),
    "int8": quantised("int8"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--problems", type=int, default=HELD_OUT, help="how many of the held out")
    parser.add_argument("--set", type=Path, help="prepared problems in place of the sums")
    parser.add_argument("--rows", type=Path, help="a JSONL file to write a row per junior to")
    options = parser.parse_args()
    from transformers import AutoTokenizer

    from tandem_plugin.lab.data.problem import prompt_ids
    from tandem_plugin.lab.evaluation.inputs import Checkpoint
    from tandem_plugin.lab.evaluation.scoring import HFModel

    tokenizer = AutoTokenizer.from_pretrained(options.model, padding_side="left")
    problems = held_out(options.set)[: options.problems]
    prompts = [prompt_ids(problem.messages, tokenizer) for problem in problems]
    senior = HFModel(Checkpoint("senior", str(options.model), ""), "float32", "cpu")
    read = prompts[:SCORED]
    responses = [written(senior, tokenizer, read, seed, temperature=1.0) for seed in SEEDS]
    print("| junior | KL, nats per token | overlap | cross-entropy | right answers of both seeds |")
    print("|---|---:|---:|---:|---:|")
    for name, form in JUNIORS.items():
        junior = HFModel(Checkpoint(name, str(options.model), ""), "float32", "cpu")
        form(junior._model)
        scores = [mean_scores(senior, junior, read, of_seed) for of_seed in responses]
        right = [right_answers(junior, tokenizer, problems, prompts, seed) for seed in SEEDS]
        columns = [
            spread([score[column] for score in scores]) for column in ("kl", "overlap", "ce")
        ]
        counts = " and ".join(f"{count} of {len(problems)}" for count in right)
        if options.rows:
            row = {"junior": name, "problems": len(problems), "right": right, "scores": scores}
            with options.rows.open("a", encoding="utf-8") as rows:
                rows.write(json.dumps(row) + "\n")
        print(f"| {name} | {' | '.join(columns)} | {counts} |", flush=True)


def held_out(prepared: Path | None) -> list[Any]:
    """The problems of a file, or the sums that the model was not taught."""
    if prepared is None:
        from real_model import different_sums

        return list(different_sums(HELD_OUT)[1])
    from tandem_plugin.lab.data import read_problems

    return list(read_problems(str(prepared)).problems)


@torch.inference_mode()
def written(
    model: Any, tokenizer: Any, prompts: list[list[int]], seed: int, *, temperature: float
) -> list[list[int]]:
    """One response to each prompt, up to and with its end."""
    torch.manual_seed(seed)
    batch = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
    whole = model._model.generate(
        **batch, do_sample=True, temperature=temperature, top_k=0, top_p=1.0,
        max_new_tokens=TOKENS, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    responses = whole[:, batch["input_ids"].shape[1] :].tolist()
    end = tokenizer.eos_token_id
    return [ids[: ids.index(end) + 1] if end in ids else ids for ids in responses]


def mean_scores(
    senior: Any, junior: Any, prompts: list[list[int]], responses: list[list[int]]
) -> dict[str, float]:
    """Means per token of what the junior makes of the senior's responses."""
    from tandem_plugin.lab.evaluation.scoring import chunk_length, score_response

    chunk = chunk_length(senior.vocabulary)
    scores = [
        score_response(
            senior.states(prompt, ids), senior.head, junior.states(prompt, ids), junior.head,
            ids, chunk,
        )
        for prompt, ids in zip(prompts, responses, strict=True)
    ]  # fmt: skip
    tokens = sum(score.tokens for score in scores)
    return {
        "kl": sum(score.kl for score in scores) / tokens,
        "overlap": sum(score.overlap for score in scores) / tokens,
        "ce": sum(score.cross_entropy for score in scores) / tokens,
    }


def right_answers(
    model: Any, tokenizer: Any, problems: list[Any], prompts: list[list[int]], seed: int
) -> int:
    """How many sums a model answers correctly."""
    from tandem_plugin.grading.grader import grade

    texts = tokenizer.batch_decode(
        written(model, tokenizer, prompts, seed, temperature=TEMPERATURE), skip_special_tokens=True
    )
    grades = [
        grade(text, list(problem.golds)) for text, problem in zip(texts, problems, strict=True)
    ]
    return sum(graded.outcome == "correct" for graded in grades)


def spread(values: list[float]) -> str:
    """The mean of the seeds, and each."""
    each = ", ".join(f"{value:.4g}" for value in values)
    return f"{fmean(values):.3g} ({each})"


if __name__ == "__main__":
    main()
