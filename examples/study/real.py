"""The study on a real language model: SmolLM2-135M-Instruct beside its frozen self, on sums.

    python examples/study/real.py [--out runs/study-real] [--seeds 2] [--workers 2]

GRPO, TRL, KL-Reg with three coefficients, and GRPO on a random half of its tokens, each from a
model that was taught to box an answer; every seed is taught on other sums, and is one unit of the
statistics. Loss, draws and replay are those of the toy study. Stop it as you like: the same command
resumes, and trains nothing twice.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from light.generate import Responses, generate
from light.grpo import Method, Optimization, train
from light.notes import StudyError, check_settings, write_json
from light.runs import read_note
from light.size import GRPO, HALF, KL_COEFFICIENTS, TRL, kl_reg
from light.table import matched
from real_model import TAUGHT, get_model, teach

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.grading import grade
from tandem_plugin.lab.data import read_problems
from tandem_plugin.lab.data.problem import Problem, prompt_ids
from tandem_plugin.lab.evaluation.drift import kl_divergence, token_counts
from tandem_plugin.lab.evaluation.legibility import chunk_scores
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.seeds import derive_seed

METHODS = (GRPO, TRL, HALF, *map(kl_reg, KL_COEFFICIENTS))
"""In the order in which they are trained; the first two have one seed more than the others."""
TEAMS = ("word", "step", "step-bernoulli")
"""Schedules of the evaluated teams. A step is a sentence: SmolLM2 writes a blank line as two
tokens, and the answers here are two sentences in one line."""
HANDOVERS = (2, 5)
"""Word boundaries after which the junior finishes the senior's response, each on half of the
problems: within the sum, and once its result is written. How often it is right is the mean of H_t
(appendix C of the paper, which does not measure it) over these places."""
MEASURES = {
    "solo": "alone",
    "word": "team, `word`",
    "step": "team, `step`",
    "step-bernoulli": "team, `step-bernoulli`",
    "handover": "junior finishes",
    "cross_entropy": "junior's cross-entropy",
    "overlap": "overlap",
    "accepted-word": "accepted, `word`",
    "accepted-step": "accepted, `step`",
    "kl": "drift",
}
"""Accepted: the share of the junior's drafts that the senior would accept in the speculative mode,
which is the overlap at the places in a team's responses where the senior is the author."""
CHUNK = 128
"""Positions whose distributions over 49,152 tokens are compared at a time, in float64."""


@dataclass(frozen=True, slots=True)
class Size:
    """taught: batches of 16 worked sums. held_out: problems that are evaluated, one response each;
    all others are trained on."""

    training: Optimization = field(
        default_factory=lambda: Optimization(steps=8, prompts=4, learning_rate=1e-5)
    )
    taught: int = 6
    held_out: int = 64
    evaluate_every: int = 4


class Sums:
    """The tokenizer, the problems as token ids, and the rewards of responses."""

    longest = 24

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.end = int(self.tokenizer.eos_token_id)
        self._vocabulary = Vocabulary.from_tokenizer(self.tokenizer)

    def rule(self, schedule: str) -> Rule:
        boundaries = "sentence" if schedule.startswith("step") else None
        config = TandemConfig(schedule=schedule, boundaries=boundaries)
        return TandemRules(config, self._vocabulary).default

    def handover(self, after: int) -> Rule:
        """The senior writes up to a word boundary, the junior the rest."""
        config = TandemConfig(schedule="handover", first="senior", after=after, boundaries="word")
        return TandemRules(config, self._vocabulary).default

    def prompts(self, problems: Sequence[Problem]) -> Tensor:
        """int64 ``[problems, length]``: sums of one-digit numbers have prompts of one length."""
        return torch.tensor([prompt_ids(one.messages, self.tokenizer) for one in problems])

    def rewards(self, responses: Sequence[Sequence[int]], problems: Sequence[Problem]) -> Any:
        """float64 ``[responses]``: 1 where the scorer of reasoning-gym takes the box, else 0."""
        texts = [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in responses]
        pairs = zip(texts, problems, strict=True)
        return np.array([grade(text, problem.golds).reward for text, problem in pairs])


class HFModel(nn.Module):
    """A Hugging Face model with the toy study's interface. Prompts of a batch have one length."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def new_cache(self, batch: int, length: int) -> Any:
        from transformers import DynamicCache

        return DynamicCache()

    def forward(self, ids: Tensor, cache: Any = None) -> Tensor:
        """Logits: float32 ``[batch, length, V]``, with a cache of the last position alone.

        Repeats of a prompt, as GRPO's groups have them, are read once.
        """
        if cache is None:
            return self.model(input_ids=ids, use_cache=False).logits
        rows, counts = torch.unique_consecutive(ids, dim=0, return_counts=True)
        repeats = int(counts[0])
        if cache.get_seq_length() or repeats == 1 or (counts != repeats).any():
            rows, repeats = ids, 1
        logits = self.model(input_ids=rows, past_key_values=cache, logits_to_keep=1).logits
        if repeats > 1:
            cache.batch_repeat_interleave(repeats)
        return logits.repeat_interleave(repeats, dim=0)

    def response_logits(self, ids: Tensor, start: int) -> Tensor:
        """Of each token behind a prompt of ``start`` tokens: float32 ``[batch, responses, V]``.

        With its gradients, and the prompt of a group is read once.
        """
        cache = self.new_cache(*ids.shape)
        first = self(ids[:, :start], cache)
        rest = self.model(input_ids=ids[:, start:-1], past_key_values=cache).logits
        return torch.cat((first, rest), dim=1)


@dataclass(frozen=True, slots=True)
class Run:
    """One training; ``method`` None measures the model as it was taught."""

    seed: int
    method: Method | None

    @property
    def name(self) -> str:
        return f"seed {self.seed} {'as taught' if self.method is None else self.method.name}"

    def note(self, out: Path) -> Path:
        """The file with what came of it."""
        return out / "trainings" / f"{self.name.replace(' ', '-')}.json"


KEPT = (Run(1, GRPO), Run(1, TRL))
"""Whose seniors are kept, 540 MB each, for ``benchmarks/speculative.py``."""


def all_runs(seeds: int) -> list[Run]:
    """Seed by seed, so that a study that is cut short has every method; GRPO and TRL once more."""
    whole = [Run(seed, method) for seed in range(1, seeds + 1) for method in (None, *METHODS)]
    return [*whole, *(Run(seeds + 1, method) for method in (None, GRPO, TRL))]


def problems_of(size: Size) -> tuple[list[Problem], list[Problem]]:
    """(training, held out): all different sums and differences of two one-digit numbers."""
    drawn = read_problems(f"{TAUGHT},count=600,seed=2").problems
    different = list({one.text: one for one in drawn}.values())
    return different[size.held_out :], different[: size.held_out]


def taught_model(out: Path, size: Size, seed: int) -> Path:
    """The folder of a seed's model: taught on sums of its own, those held out among them.

    Teaching shows the form of an answer in less than a hundred examples.
    """
    folder = out / "models" / f"seed-{seed}"
    if not (folder / "taught").exists():
        shutil.copytree(out / "models" / "SmolLM2", folder, dirs_exist_ok=True)
        teach(folder, size.taught, seed=derive_seed(seed, "taught") % 2**31)
        (folder / "taught").touch()
    return folder


def run_one(out: Path, size: Size, run: Run) -> None:
    """Train and measure one run, and write its note; a run that has one is left alone."""
    torch.set_num_threads(1)
    note = run.note(out)
    if note.exists():
        return
    started = time.monotonic()
    folder = taught_model(out, size, run.seed)
    task, start = Sums(folder), HFModel(folder).eval()
    training, held_out = problems_of(size)
    juniors = None if run.method is None else read_note(Run(run.seed, None).note(out))["juniors"]
    evaluation = Evaluation(task, start, held_out, run.seed, juniors)
    rewards: list[float] = []
    curve: list[dict[str, Any]] = []

    def on_step(step: int, senior: Any, reward: float) -> None:
        rewards.append(reward)
        print(f"{run.name}: step {step}, reward {reward:.2f}", flush=True)
        if step % size.evaluate_every == 0 or step == size.training.steps:
            curve.append({"step_number": step, **evaluation.measure(senior)})

    if run.method is None:
        curve.append({"step_number": 0, **evaluation.measure(start)})
    else:
        senior: Any = train(
            task,
            start,  # type: ignore[arg-type]
            start,  # type: ignore[arg-type]
            run.method,
            training,
            run.seed,
            size.training,
            on_step,
        )
        if run in KEPT:
            senior.model.save_pretrained(out / "seniors" / run.method.name)
            task.tokenizer.save_pretrained(out / "seniors" / run.method.name)
    seconds = round(time.monotonic() - started)
    found = {"name": run.name, "seconds": seconds, "rewards": rewards, "curve": curve}
    write_json(note, found if juniors else {**found, "juniors": evaluation.juniors})


class Evaluation:
    """Accuracy alone and of teams, legibility to the junior, and drift from it, at temperature 1.

    Every method of a seed is evaluated with the same random numbers. The junior's own tokens are
    drawn with others: as taught, where both are one model, drift is that of noise alone, its null.
    Drift is smoothed by one token over the whole vocabulary, for so few are counted.
    """

    def __init__(
        self,
        task: Sums,
        junior: Any,
        problems: Sequence[Problem],
        seed: int,
        juniors: list[list[int]] | None = None,
    ) -> None:
        """juniors: token ids of the junior's own responses, generated here if there are none."""
        self.task, self.junior, self.problems, self.seed = task, junior, problems, seed
        self.vocabulary = int(junior.model.config.vocab_size)
        self.juniors = juniors or self._answers("junior", junior).token_ids()
        self._counts = token_counts(self.juniors, self.vocabulary)

    @torch.no_grad()
    def measure(self, senior: Any) -> dict[str, float]:
        """The :data:`MEASURES` of a senior, and the mean length of its responses in tokens."""
        alone = self._answers("solo", senior)
        cross_entropy, overlap = _legibility(senior, self.junior, alone, alone.written)
        parts = [self.problems[place :: len(HANDOVERS)] for place in range(len(HANDOVERS))]
        finished = [
            self._solved(self._answers("handover", senior, self.task.handover(after), part), part)
            for after, part in zip(HANDOVERS, parts, strict=True)
        ]
        teams = {team: self._answers(team, senior, self.task.rule(team)) for team in TEAMS}
        accepted = {
            f"accepted-{team}": _legibility(
                senior, self.junior, of_team, of_team.written & of_team.senior
            )[1]
            for team, of_team in teams.items()
            if f"accepted-{team}" in MEASURES
        }
        return {
            "solo": self._solved(alone),
            **{team: self._solved(responses) for team, responses in teams.items()},
            "handover": float(np.mean(finished)),
            "cross_entropy": cross_entropy,
            "overlap": overlap,
            **accepted,
            "kl": kl_divergence(
                token_counts(alone.token_ids(), self.vocabulary),
                self._counts,
                smoothing=1 / self.vocabulary,
            ),
            "tokens": float(alone.lengths.float().mean()),
        }

    def _answers(
        self, name: str, writer: Any, rule: Rule | None = None, part: Sequence[Problem] = ()
    ) -> Responses:
        """A response to each problem; with a rule, of the team."""
        problems = part or self.problems
        noise = torch.Generator().manual_seed(derive_seed(self.seed, "evaluation", name))
        seeds = [derive_seed(self.seed, "team", row) for row in range(len(problems))]
        prompts, partner = self.task.prompts(problems), None if rule is None else self.junior
        longest, end = self.task.longest, self.task.end
        return generate(writer, partner, prompts, longest, end, noise, rule, seeds if rule else ())

    def _solved(self, responses: Responses, part: Sequence[Problem] = ()) -> float:
        return float(self.task.rewards(responses.token_ids(), part or self.problems).mean())


def _legibility(
    senior: Any, junior: Any, responses: Responses, places: Tensor
) -> tuple[float, float]:
    """The junior's cross-entropy in nats and the overlap, means over places.

    places: bool ``[batch, longest]``, of the responses' tokens.
    """
    start = responses.prompt_length
    logits = [model.response_logits(responses.ids, start)[places] for model in (senior, junior)]
    targets = responses.ids[:, start:][places]
    parts = zip(*(each.split(CHUNK) for each in (*logits, targets)), strict=True)
    scores = [torch.stack(chunk_scores(*part)) for part in parts]
    surprise, shared = torch.cat(scores, dim=1).mean(dim=1).tolist()
    return surprise, shared


def run_all(
    out: Path, size: Size, runs: Sequence[Run], workers: int, on_done: Callable[[str], None]
) -> None:
    """Every run in a process of its own; a seed's model is taught by its first run alone."""
    context = multiprocessing.get_context("spawn")
    for first in (True, False):
        part = [run for run in runs if (run.method is None) is first]
        with ProcessPoolExecutor(workers, mp_context=context, max_tasks_per_child=1) as pool:
            waiting = {pool.submit(run_one, out, size, run): run for run in part}
            for future in as_completed(waiting):
                future.result()
                on_done(waiting[future].name)


def page(out: Path, size: Size, runs: Sequence[Run]) -> str:
    """All results as Markdown: means over seeds, then every seed."""
    notes = {run: read_note(run.note(out)) for run in runs if run.note(out).exists()}
    head = f"| | seeds | {' | '.join(MEASURES.values())} |\n|---|---:|{'---:|' * len(MEASURES)}"
    means, each = [head], [head.replace("seeds", "seed")]
    for method in (None, *METHODS):
        found = {run.seed: note for run, note in notes.items() if run.method == method}
        if not found:
            continue
        name = "as taught" if method is None else method.name
        last = [note["curve"][-1] for note in found.values()]
        means.append(_row(name, len(last), {key: [one[key] for one in last] for key in MEASURES}))
        each += [
            _row(
                f"{name}, step {point['step_number']}",
                seed,
                {key: [point[key]] for key in MEASURES},
            )
            for seed, note in found.items()
            for point in note["curve"]
        ]
    differences = [head.replace("| |", "| less GRPO |", 1)]
    for method in METHODS[1:]:
        for choice, chosen in (("same step", _last), ("same accuracy alone", _matched)):
            values = _differences(notes, method, chosen)
            if values:
                differences.append(_row(f"{method.name}, {choice}", len(values["solo"]), values))
    minutes = sum(note["seconds"] for note in notes.values()) / 60
    return "\n\n".join(
        (
            "# The study on SmolLM2-135M-Instruct",
            f"{len(notes)} of {len(runs)} runs, {minutes:.0f} minutes in all, each on one core. "
            f"{size.training.steps} steps of {size.training.prompts} x {size.training.group}, "
            f"{size.held_out} held-out problems, temperature 1. ± is the standard error over "
            "seeds; with fewer than five, no difference can be told from chance by a test.",
            "## At the last step\n\n" + "\n".join(means),
            "## Differences of the same seed\n\n" + "\n".join(differences),
            "## Every seed\n\n" + "\n".join(each),
        )
    )


def _row(name: str, seeds: int, values: Mapping[str, Sequence[float]]) -> str:
    cells = [_cell(each) for each in values.values()]
    return f"| {name} | {seeds} | {' | '.join(cells)} |"


def _cell(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def _differences(
    notes: Mapping[Run, Any],
    method: Method,
    chosen: Callable[[Any, Any], tuple[Any, Any]],
) -> dict[str, list[float]]:
    """Of each measure, a method less GRPO, seed by seed; empty where no seed has both."""
    found: dict[str, list[float]] = {}
    for run, note in notes.items():
        base = notes.get(Run(run.seed, GRPO))
        taught = notes.get(Run(run.seed, None))
        if run.method == method and base and taught:
            curves = [[*taught["curve"], *one["curve"]] for one in (note, base)]
            ours, theirs = chosen(*curves)
            for key in MEASURES:
                found.setdefault(key, []).append(ours[key] - theirs[key])
    return found


def _last(ours: Any, theirs: Any) -> tuple[Any, Any]:
    return ours[-1], theirs[-1]


def _matched(ours: Any, theirs: Any) -> tuple[Any, Any]:
    return matched(ours, theirs, MEASURES)


def power_line(seeds: int, size: Size) -> str:
    """What a difference between two methods must be to be told, said before anything is trained."""
    from scipy import optimize, stats

    # Of two accuracies of one seed, each of so many answers of which half are right.
    spread = float(np.sqrt(2 * 0.25 / size.held_out))

    def missing(difference: float) -> float:
        shift = difference / spread * np.sqrt(seeds)
        return float(stats.nct.sf(stats.t.ppf(0.95, seeds - 1), seeds - 1, shift)) - 0.8

    least = optimize.brentq(missing, 0, 100 * spread)
    return (
        f"With {seeds} seeds, and {size.held_out} answers for each, a difference of two methods' "
        f"accuracies is told at 5%, one-sided, with a power of 80% from {least:.2f} on."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/study-real"), help="a folder")
    parser.add_argument("--seeds", type=int, default=2, help="of every method")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args(arguments)
    size, runs = Size(), all_runs(options.seeds)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    try:
        check_settings(out / "study.json", asdict(size))
    except StudyError as error:
        print(error, file=sys.stderr)
        return 1
    print(power_line(options.seeds, size), flush=True)
    get_model(out / "models" / "SmolLM2")
    done = 0

    def on_done(name: str) -> None:
        nonlocal done
        done += 1
        (out / "study.md").write_text(page(out, size, runs) + "\n", encoding="utf-8")
        print(f"{done} of {len(runs)}: {name}.", flush=True)

    try:
        run_all(out, size, runs, options.workers, on_done)
    except KeyboardInterrupt:
        print("Interrupted; the same command resumes it.")
        return 130
    print(f"The tables are in {out / 'study.md'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
