"""The registered comparison on SmolLM2-135M-Instruct: is writing with the junior worth more than
training half of the tokens?

    python examples/study/gpu.py [--out runs/study-gpu] [--seeds 4] [--together 4] [--quick]

All trainings of some seeds are one stack of models, on a GPU where there is one. First a pilot, of
a seed of its own, chooses the learning rate. The same command resumes after the last group of seeds
that was finished, and repeats nothing; with more ``--seeds`` it goes on from there.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chains import CONTINUED, QUICK, TASK, WHOLE, Chain, Chains, GpuSize, draw_chains, split_chains
from light.grpo import GRPO, HALF, TANDEM
from light.judging import LEVEL, PAPER, POWER, complete_models, differences, holm, power
from light.page import difference_lines, level_lines, write_rows
from light.responses import Team
from light.runs import METHODS, TAUGHT
from light.study import check_settings, read_note, table_lines
from light.task import reward
from light.worlds import SECOND
from real_model import CHAT, get_model
from stack import Reader, Stack
from stacked import Noise, Run, Step, Written, decoding_type, teach, train, write

from tandem_plugin.lab.evaluation.drift import kl_divergence, token_counts
from tandem_plugin.lab.evaluation.results import write_json
from tandem_plugin.lab.evaluation.scoring import PositionScores, chunk_length, chunk_scores
from tandem_plugin.lab.evaluation.significance import unit_error, unit_test
from tandem_plugin.seeds import derive_seed

RATES = (5e-6, 1e-5, 2e-5, 4e-5)
"""Of the pilot."""
PILOT_SEED = 0
LEAST_OVERLAP = 0.945
MOST_LOST = 0.02
"""How far the pilot's last accuracy may lie below its best."""
PRIMARY = (("step", "greater"), (CONTINUED, "greater"))
NULL = ("step", CONTINUED, "kl", "overlap", "drift")
"""What GRPO with another training seed shows by itself."""
ARMS = (*METHODS, SECOND)
SIZES = (8, 12, 16)
"""Numbers of seeds between which the spread of the first four decides."""


class Evaluation:
    """Evaluates seniors beside their seeds' starts, all at once and with the same random numbers in
    every method of a seed."""

    def __init__(self, task: Chains, starts: Stack, seeds: Sequence[int], size: GpuSize) -> None:
        self.task, self.starts, self.seeds, self.size = task, starts, list(seeds), size
        problems = split_chains(size, self.seeds[0])
        self.test, self.validation = problems.test, problems.validation
        self.counts = [
            token_counts(rows, starts.vocabulary)
            for rows in self._alone_ids(starts, self.seeds, "junior")
        ]

    def _alone_ids(self, stack: Stack, seeds: list[int], name: str) -> list[list[list[int]]]:
        """Token ids of each model's solo responses, drawn under a name."""
        made = self._answers(stack, seeds, name, None, self.test, dict(self.size.samples)["solo"])
        return [_rows(ids, written) for ids, written in zip(made.ids, made.written, strict=True)]

    def measure(
        self, seniors: Stack, seeds: Sequence[int], own: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Of each senior, a point: see ``light.runs.run_one``.

        seeds: of each. own: the schedule by which each is validated, "solo" or a team's.
        """
        of = list(seeds)
        points: list[dict[str, Any]] = [{} for _ in of]
        scored = self.size.validation_samples
        for name in dict.fromkeys(("solo", *own)):
            found = self._accuracies(seniors, of, "validation", name, self.validation, scored)[0]
            for point, value, chosen in zip(points, found, own, strict=True):
                if name == "solo":
                    point |= {"validation": value, "own_validation": value}
                if name == chosen:
                    point["own_validation"] = value
        for name, samples in self.size.samples:
            found, made, boxed = self._accuracies(seniors, of, "test", name, self.test, samples)
            for point, value in zip(points, found, strict=True):
                point[name] = value
            if name == "solo":
                read = self._read(seniors, of, made)
                for place, point in enumerate(points):
                    counts = token_counts(
                        _rows(made.ids[place], made.written[place]), seniors.vocabulary
                    )
                    juniors = self.counts[self.seeds.index(of[place])]
                    smoothing = 1 / seniors.vocabulary
                    point |= {"boxed": boxed[place], **read[place]}
                    point["drift"] = kl_divergence(counts, juniors, smoothing=smoothing)
        return points

    def _accuracies(
        self,
        seniors: Stack,
        seeds: list[int],
        purpose: str,
        name: str,
        chains: list[Chain],
        samples: int,
    ) -> tuple[list[float], Written, list[float]]:
        """Of each senior: its accuracy, and how many of its responses have a box."""
        schedule = None if name == "solo" else name
        made = self._answers(seniors, seeds, f"{purpose} {name}", schedule, chains, samples)
        golds = [one.answer for one in chains for _ in range(samples)]
        accuracies, boxed = [], []
        for ids, written in zip(made.ids, made.written, strict=True):
            texts = self.task.texts(ids, written)
            right = [reward(*pair) for pair in zip(texts, golds, strict=True)]
            accuracies.append(float(np.mean(right)))
            boxed.append(float(np.mean([r"\boxed{" in text for text in texts])))
        return accuracies, made, boxed

    def _answers(
        self,
        seniors: Stack,
        seeds: list[int],
        name: str,
        schedule: str | None,
        chains: list[Chain],
        samples: int,
    ) -> Written:
        """Responses in order, ``samples`` to each chain, of every senior."""
        device, task = seniors.device, self.task
        prompts = task.prompts(chains).repeat_interleave(samples, 0)
        rows = min(self.size.rows, len(prompts))
        every = list(range(len(seeds)))
        dtype = decoding_type(device)
        juniors = None
        if schedule is not None:
            juniors = self.starts.pick([self.seeds.index(seed) for seed in seeds], dtype)
        length = prompts.shape[1] + task.longest
        reader = Reader(seniors.pick(every, dtype), juniors, every, rows, length)
        noise = Noise(seeds, device, name)
        made = []
        for first in range(0, len(prompts), rows):
            part = prompts[first : first + rows].to(device).expand(len(seeds), -1, -1)
            team = None
            if schedule is not None:
                places = range(first, first + part.shape[1])
                drawn = [derive_seed(seed, name, "team", row) for seed in seeds for row in places]
                team = Team(task.rule(schedule), drawn, task.longest, device)
            cowritten = torch.ones(len(seeds), dtype=torch.bool, device=device)
            temperature = self.size.training.temperature
            made.append(write(reader, part, task, team, cowritten, noise, temperature))
        return Written(
            *(
                torch.cat([getattr(one, key) for one in made], 1)
                for key in ("ids", "written", "senior")
            )
        )

    @torch.no_grad()
    def _read(self, seniors: Stack, seeds: list[int], made: Written) -> list[dict[str, float]]:
        """Of each senior, means over the positions of its first response to each problem."""
        samples = dict(self.size.samples)["solo"]
        ids, written = made.ids[:, ::samples], made.written[:, ::samples]
        prompts = self.task.prompts(self.test).to(ids.device)
        scores: list[list[list[Tensor]]] = [[[] for _ in PositionScores._fields] for _ in seeds]
        juniors = self.starts.pick([self.seeds.index(seed) for seed in seeds])
        start = prompts.shape[1]
        for first in range(0, len(prompts), self.size.micro):
            part = slice(first, first + self.size.micro)
            batch = prompts[part].expand(len(seeds), -1, -1)
            whole = torch.cat((batch, ids[:, part]), 2)
            both = [stack.response_logits(whole, start) for stack in (seniors, juniors)]
            for place in range(len(seeds)):
                kept = written[place, part]
                rows = (*(one[place][kept] for one in both), ids[place, part][kept])
                length = chunk_length(seniors.vocabulary)
                for chunk in zip(*(one.split(length) for one in rows), strict=True):
                    for kept_scores, found in zip(scores[place], chunk_scores(*chunk), strict=True):
                        kept_scores.append(found)
        return [
            {
                name: float(torch.cat(values).mean())
                for name, values in zip(PositionScores._fields, of_model, strict=True)
            }
            for of_model in scores
        ]


def _rows(ids: Tensor, written: Tensor) -> list[list[int]]:
    lengths = written.sum(1).tolist()
    return [row[:length] for row, length in zip(ids.tolist(), lengths, strict=True)]


def pilot(out: Path, task: Chains, base: Stack, size: GpuSize) -> float:
    """The learning rate: the largest at which GRPO ends near its best with enough overlap; the
    smallest where none does. Its note keeps what it was chosen by."""
    file = out / "pilot.json"
    if not file.exists():
        starts = teach(task, base, [PILOT_SEED], size)
        evaluation = Evaluation(task, starts, [PILOT_SEED], size)
        runs = [Run(PILOT_SEED, GRPO)] * len(RATES)
        accuracies: list[list[float]] = [[] for _ in RATES]
        overlaps = [0.0] * len(RATES)
        for step in train(task, starts, [PILOT_SEED], runs, RATES, size):
            _say("pilot", step, size)
            if step.number % size.evaluate_every == 0 or step.number == size.training.steps:
                seeds, own = [PILOT_SEED] * len(RATES), ["solo"] * len(RATES)
                points = evaluation.measure(step.seniors, seeds, own)
                for found, point in zip(accuracies, points, strict=True):
                    found.append(point["validation"])
                overlaps = [point["overlap"] for point in points]
        good = [
            rate
            for rate, found, overlap in zip(RATES, accuracies, overlaps, strict=True)
            if found[-1] >= max(found) - MOST_LOST and overlap >= LEAST_OVERLAP
        ]
        chosen = max(good) if good else min(RATES)
        found = {"rates": RATES, "accuracies": accuracies, "overlaps": overlaps, "chosen": chosen}
        write_json(file, found)
    return float(read_note(file)["chosen"])


def _say(name: str, step: Step, size: GpuSize) -> None:
    if step.number <= 2 or step.number % 5 == 0:
        listed = " ".join(f"{one:.2f}" for one in step.rewards)
        print(f"{name}: step {step.number} of {size.training.steps}, rewards {listed}", flush=True)


def run_group(
    out: Path, task: Chains, base: Stack, seeds: list[int], rate: float, size: GpuSize
) -> None:
    """Teach, train and measure all runs of some seeds, and note them."""
    started = time.monotonic()
    starts = teach(task, base, seeds, size)
    evaluation = Evaluation(task, starts, seeds, size)
    runs = [Run(seed, method) for seed in seeds for method in ARMS]
    points: dict[Run, list[dict[str, Any]]] = {run: [] for run in runs}
    taught = evaluation.measure(starts, seeds, ["solo"] * len(seeds))
    for seed, point in zip(seeds, taught, strict=True):
        points[Run(seed, None)] = [{"step_number": 0, "trained_tokens": 0, **point}]
    tokens = [0] * len(runs)
    own = [str(run.method.schedule) if run.method and run.cowritten else "solo" for run in runs]
    name = f"seeds {', '.join(map(str, seeds))}"
    for step in train(task, starts, seeds, runs, [rate] * len(runs), size):
        _say(name, step, size)
        tokens = [sum(both) for both in zip(tokens, step.trained, strict=True)]
        if step.number % size.evaluate_every == 0 or step.number == size.training.steps:
            found = evaluation.measure(step.seniors, [run.seed for run in runs], own)
            for run, point, trained in zip(runs, found, tokens, strict=True):
                counted = {"step_number": step.number, "trained_tokens": trained}
                points[run].append({**counted, **point})
    seconds = round((time.monotonic() - started) / len(points))
    for run, curve in points.items():
        method = TAUGHT if run.method is None else run.method.name
        row = {"model": run.seed, "method": method, "seconds": seconds, "rate": rate}
        write_json(run.note(out), {**row, "points": curve})


def seeds_needed(differences_of_team: np.ndarray) -> str:
    """How many seeds the spread of a few asks for: the fewest of :data:`SIZES` with a power of 80%
    for the paper's effect. The sign and size of the differences are not looked at."""
    spread = float(np.std(differences_of_team, ddof=1)) if len(differences_of_team) > 1 else 0.0
    if not spread:
        return f"No spread between seeds is known: {SIZES[0]} seeds."
    enough = (size for size in SIZES if power(PAPER, spread, size, LEVEL) >= POWER)
    return (
        f"Between seeds, the team's difference has a standard deviation of {100 * spread:.2f} "
        f"points: {next(enough, SIZES[-1])} seeds."
    )


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The registered tests and every difference, as Markdown; with fewer seeds than may be tested,
    how many it takes."""
    curves = complete_models(rows, ARMS)
    found = {
        name: differences(curves, (TANDEM.name, HALF.name), "accuracy", name) for name, _ in PRIMARY
    }
    lines = [f"# SmolLM2-135M-Instruct: {len(curves)} seeds", ""]
    if len(curves) < min(SIZES):
        return "\n".join([*lines, f"No claim is made. {seeds_needed(found['step'])}", ""])
    tested = [unit_test(found[name], direction).p for name, direction in PRIMARY]
    cells = [
        (
            name,
            f"{found[name].mean():+.4f} ± {unit_error(found[name]):.4f}",
            f"{p:.2g}",
            f"{corrected:.2g}",
        )
        for (name, _), p, corrected in zip(PRIMARY, tested, holm(tested), strict=True)
    ]
    lines += ["Tandem less GRPO on half of its tokens, at equal accuracy alone:", ""]
    lines += table_lines(("Measure", "difference", "p, one-sided", "p, Holm"), cells)
    cells = []
    for name in NULL:
        null = differences(curves, (SECOND.name, GRPO.name), "accuracy", name)
        cells.append((name, f"{null.mean():+.4f} ± {unit_error(null):.4f}"))
    lines += ["", "GRPO with another training seed less GRPO, at equal accuracy alone:", ""]
    lines += table_lines(("Measure", "difference"), cells)
    lines += ["", *difference_lines(curves), "", *level_lines(curves), ""]
    return "\n".join(lines)


def quick_model(folder: Path) -> Path:
    """A randomly initialised model, and a tokenizer made of the task's own words."""
    from demo.model import train_tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    rng = random.Random(1)
    texts = [f"Compute {one.text}. {TASK}\n{one.worked(rng)}" for one in draw_chains(400, 1)]
    tokenizer = train_tokenizer(texts, 360)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        max_position_embeddings=256,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def main() -> int:
    """Runs it; returns the exit status."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/study-gpu"), help="a folder")
    parser.add_argument("--seeds", type=int, default=4, help="how many in all, from 1 on")
    parser.add_argument("--together", type=int, help="seeds in one stack: 4 on a GPU, 1 on a CPU")
    parser.add_argument("--quick", action="store_true", help="the smallest: nothing is learnt")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    size = QUICK if options.quick else WHOLE
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    check_settings(out / "study.json", asdict(size))
    folder = out / "model"
    folder = quick_model(folder) if options.quick else get_model(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    task = Chains(tokenizer)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    base = Stack.of(model, device)
    rate = pilot(out, task, base, size)
    print(f"The pilot chose a learning rate of {rate:g}.", flush=True)

    def every(seed: int) -> list[Run]:
        return [Run(seed, method) for method in (None, *ARMS)]

    seeds = range(1, options.seeds + 1)
    missing = [seed for seed in seeds if not all(run.note(out).exists() for run in every(seed))]
    together = options.together or (4 if device.type == "cuda" else 1)
    for first in range(0, len(missing), together):
        run_group(out, task, base, missing[first : first + together], rate, size)
        done = [run for seed in seeds for run in every(seed) if run.note(out).exists()]
        rows = [read_note(run.note(out)) for run in done]
        write_rows(out / "rows.jsonl", rows)
        (out / "study.md").write_text(page(rows), encoding="utf-8")
    print(f"The tables are in {out / 'study.md'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
