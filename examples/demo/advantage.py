"""How much less must the senior err in Spanish for GRPO to leave English?

The demo's senior is taught anew with each share of mistakes in Spanish and trained by GRPO alone,
in plain PyTorch instead of verl and vLLM: 70 to 90 seconds each, on one core. ::

    python examples/demo/advantage.py [--out runs/advantage]

Lessons, problems, sizes and rates are the demo's. The rows are the English sentences of its
responses to the held-out problems, before and after.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pair
import run
import torch
from evaluation import GRPO, Score, difference, markdown
from measures import ERRORS, RESPONSES, SAMPLING, TAUGHT, Answer, languages
from model import build_model, fit
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from tandem_plugin.grading import grade
from tandem_plugin.seeds import derive_seed

sys.path.append(str(Path(__file__).resolve().parents[1] / "study"))
from light.grpo import advantages, policy_loss

SPANISH = (0.3, 0.25, 0.2, 0.15, 0.1)
"""Shares of the facts that are misconceived in Spanish; in English it is the demo's."""
SEEDS = (7, 8, 9)
CLIP = 0.2


def main() -> int:
    """Adds the rows that the folder lacks, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/advantage"), help="folder of rows")
    file = parser.parse_args().out / "advantage.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    for share in SPANISH:
        for seed in SEEDS:
            if (share, seed) not in {(found, score.seed) for found, score in read_rows(file)}:
                with file.open("a", encoding="utf-8") as rows:
                    for score in measure(share, seed):
                        rows.write(json.dumps({"spanish": share, **asdict(score)}) + "\n")
    print("\n".join(markdown(table(read_rows(file)))))
    return 0


def read_rows(file: Path) -> list[tuple[float, Score]]:
    """(the share misconceived in Spanish, the senior's English sentences) by row."""
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [(row.pop("spanish"), Score(**row | {"solved": tuple(row["solved"])})) for row in rows]


def table(rows: Sequence[tuple[float, Score]]) -> list[list[str]]:
    """A heading, and a row for each share: each seed before and after, and if GRPO left English.

    It did if it writes fewer English sentences by more than :data:`ERRORS` standard errors over
    problems.
    """
    seeds = sorted({score.seed for _, score in rows})
    lines = [["wrong in Spanish, %", *(f"seed {seed}" for seed in seeds), "leaves English"]]
    for share in sorted({share for share, _ in rows}, reverse=True):
        found = {(score.trained, score.seed): score for other, score in rows if other == share}
        cells, left = [], 0
        for seed in seeds:
            before, after = found[TAUGHT, seed], found[GRPO, seed]
            text = difference([after], [before])
            points, error = map(float, text.split(" ± "))
            left += points < -ERRORS * error
            rates = " → ".join(f"{100 * score.rates.mean():.1f}" for score in (before, after))
            cells.append(f"{rates} ({text})")
        lines.append([f"{100 * share:.1f}", *cells, f"{left} of {len(seeds)}"])
    return lines


def measure(share: float, seed: int) -> Iterator[Score]:
    """A senior as it was taught, and after the demo's steps of GRPO."""
    numbers, held_out = pair.split_numbers(run.HELD_OUT, run.NUMBERS_SEED)
    facts = pair.draw_facts((pair.SHARES[0], share), run.FACTS_SEED + seed)
    lesson = pair.lessons(seed)["senior"]
    taught = pair.texts(lesson, facts, numbers)
    tokenizer = pair.make_tokenizer(taught)
    torch.manual_seed(lesson.seed)
    senior = build_model(lesson, tokenizer)
    fit(senior, tokenizer, taught, lesson)
    problems = pair.draw_stories(run.EVALUATION_PROBLEMS, run.EVALUATION_SEED, held_out)

    def score(trained: str, steps: int) -> Score:
        torch.manual_seed(derive_seed(seed, "evaluation"))
        asked = [story for story in problems for _ in range(RESPONSES)]
        ids, written = responses(senior, tokenizer, asked)
        answers = [Answer(text, "", False) for text in texts(ids, written, tokenizer)]
        english = [
            sum(language == pair.ENGLISH for language in languages(answer)) for answer in answers
        ]
        by_problem = np.array(english).reshape(-1, RESPONSES).sum(axis=1)
        samples = RESPONSES * pair.STEPS
        solved = tuple(map(int, by_problem))
        return Score(trained, steps, seed, "English", SAMPLING, samples, solved)

    yield score(TAUGHT, 0)
    steps = run.STEPS[GRPO]
    train(senior, tokenizer, numbers, replace(run.SIZES, steps=steps, seed=seed))
    yield score(GRPO, steps)


def train(
    senior: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    numbers: Sequence[pair.Numbers],
    sizes: run.Training,
) -> None:
    """GRPO as verl has it at its defaults, on the senior itself."""
    optimizer = torch.optim.AdamW(senior.parameters(), lr=sizes.learning_rate, weight_decay=0.01)
    stories = pair.draw_stories(sizes.steps * sizes.prompts, run.TRAINING_SEED, numbers)
    random.Random(sizes.seed).shuffle(stories)
    torch.manual_seed(derive_seed(sizes.seed, "training"))
    for step in range(sizes.steps):
        for group in optimizer.param_groups:
            group["lr"] = sizes.learning_rate * min(1.0, step / sizes.warmup)  # verl begins at 0
        part = stories[step * sizes.prompts : (step + 1) * sizes.prompts]
        asked = [story for story in part for _ in range(sizes.group)]
        ids, written = responses(senior, tokenizer, asked)
        rewards = torch.tensor(
            [
                reward(text, str(story.operations[-1]))
                for text, story in zip(texts(ids, written, tokenizer), asked, strict=True)
            ]
        )
        weights = advantages(rewards.view(-1, sizes.group)).flatten()
        with torch.no_grad():
            old = log_probs(senior, ids, written, tokenizer)
        for chosen in torch.arange(len(asked)).chunk(sizes.prompts // sizes.mini_batch):
            new = log_probs(senior, ids[chosen], written[chosen], tokenizer)
            losses = policy_loss(new, old[chosen], weights[chosen, None], CLIP)
            loss = losses[written[chosen]].mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(senior.parameters(), 1.0)
            optimizer.step()
        print(f"Step {step + 1} of {sizes.steps}: reward {rewards.mean():.3f}.", flush=True)


@torch.no_grad()
def responses(
    senior: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, asked: Sequence[pair.Story]
) -> tuple[Tensor, Tensor]:
    """One response to each story, at temperature 1.

    Returns the ids, int64 ``[batch, prompt + response]``, prompts filled up at the left and
    responses at the right, and which of a response's tokens were written, bool
    ``[batch, response]``.
    """
    tokenizer.padding_side = "left"
    prompts = tokenizer.apply_chat_template(
        [story.messages for story in asked],
        add_generation_prompt=True,
        padding=True,
        return_tensors="pt",
        return_dict=True,
    )
    ids = senior.generate(
        **prompts, do_sample=True, top_k=0, max_new_tokens=run.SIZES.max_response_length
    )
    answered = ids[:, prompts["input_ids"].shape[1] :]
    ended = (answered == tokenizer.eos_token_id).cumsum(dim=1)
    return ids, (ended == 0) | ((ended == 1) & (answered == tokenizer.eos_token_id))


def log_probs(
    senior: Qwen3ForCausalLM, ids: Tensor, written: Tensor, tokenizer: PreTrainedTokenizerFast
) -> Tensor:
    """Of each token of the responses, float32 ``[batch, response]``."""
    start = ids.shape[1] - written.shape[1]
    seen = (ids != tokenizer.pad_token_id).long()
    places = (seen.cumsum(dim=1) - 1).clamp(min=0)
    logits = senior(input_ids=ids, attention_mask=seen, position_ids=places).logits
    every = logits[:, start - 1 : -1].log_softmax(dim=-1)
    return every.gather(-1, ids[:, start:, None]).squeeze(-1)


def texts(ids: Tensor, written: Tensor, tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The responses, decoded."""
    answered = ids[:, -written.shape[1] :]
    rows = [row[kept].tolist() for row, kept in zip(answered, written, strict=True)]
    return list(tokenizer.batch_decode(rows, skip_special_tokens=True))


@lru_cache(maxsize=200_000)
def reward(text: str, answer: str) -> float:
    """1 where the product's grader takes the answer of a response, else 0."""
    return grade(text, answer).reward


if __name__ == "__main__":
    sys.exit(main())
