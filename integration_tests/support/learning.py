"""What tests of learning share: the demo's small model after a short lesson, and what it learns.

The demo's files are programs that import each other by plain names: its folder joins the path.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.lab.data import ProblemSet, prepare

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"
sys.path.append(str(DEMO))
RUNS = DEMO.parents[1] / "runs" / "tests"

STEPS = 6
"""Training steps."""

PROMPTS, GROUP, UPDATES = 32, 8, 2
"""Problems a training step, responses to each, and updates made from them."""

LENGTHS = (96, 72)
"""The most tokens of a prompt and of a response."""

VALIDATION = 64
"""Held-out problems that a trainer itself validates on."""

HELD_OUT = 512
"""Problems on which the model is measured, neither taught nor trained on; greedily."""


@dataclass(frozen=True)
class Learner:
    """A taught model that solves some of the problems it has not seen, and problems to train on."""

    folder: Path
    held_out: tuple[Any, ...]

    @property
    def model(self) -> Path:
        """The taught checkpoint, in float32."""
        return self.folder / "model"

    @property
    def data(self) -> Path:
        """The problems of all training steps: ``.jsonl`` for OpenRLHF, ``.parquet`` for verl.

        Those that a trainer validates on are beside them, in ``validation.parquet``.
        """
        return self.folder / "train"

    @classmethod
    def teach(cls, folder: Path) -> Learner:
        """Teach a fresh model, and draw the problems of the training steps.

        The model is taught once in a clone, for both trainers' tests.
        """
        from model import Lesson, draw_distinct, questions

        held_out = draw_distinct(HELD_OUT, seed=11)
        # The demo's in small: almost as many problems, in smaller batches.
        lesson = Lesson(batch_size=8, steps=1460)
        taught = lesson.problems(held_out)
        _teach_once(lesson, taught, folder / "model")
        seen = questions([*held_out, *taught])
        drawn = draw_distinct(STEPS * PROMPTS, seed=13, without=seen)
        for name, some in (("train", drawn), ("validation", held_out[:VALIDATION])):
            problems = ProblemSet("demo", tuple(one.problem for one in some))
            for trainer in ("verl", "openrlhf"):
                file = prepare(problems, trainer, folder / f"{name}-{trainer}").files["train"]
                file.rename(folder / f"{name}{file.suffix}")
        return cls(folder, tuple(held_out))

    def solved(self, checkpoint: Path) -> float:
        """The part of the held-out problems that this senior solves alone, greedily."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

        from tandem_plugin.grading import grade
        from tandem_plugin.lab.data.problem import prompt_ids

        senior = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(self.model)
        prompts = [{"input_ids": prompt_ids(one.messages, tokenizer)} for one in self.held_out]
        batch = tokenizer.pad(prompts, padding_side="left", return_tensors="pt")
        sampling = GenerationConfig(
            do_sample=False,
            max_new_tokens=64,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        written = senior.generate(**batch, generation_config=sampling)
        texts = tokenizer.batch_decode(
            written[:, batch["input_ids"].shape[1] :], skip_special_tokens=True
        )
        pairs = zip(texts, self.held_out, strict=True)
        return sum(grade(text, one.answer).reward for text, one in pairs) / len(texts)

    def assert_learnt(self, trainer: str, rewards: list[float], checkpoint: Path) -> None:
        """The senior alone solves more held-out problems than before, by four standard errors.

        Without learning that happens once in 30,000 runs; a senior that solves 20 points more
        passes 99 times of 100. rewards: the mean of each training step, of other problems each and
        of the team's responses; they must all be there. What came out is kept in ``runs/tests``.
        """
        before, after = self.solved(self.model), self.solved(checkpoint)
        told = json.dumps({"before": before, "after": after, "rewards": rewards})
        (RUNS / f"learnt-{trainer}.json").write_text(told)
        assert len(rewards) == STEPS, told
        both = (before + after) / 2
        error = math.sqrt(2 * both * (1 - both) / len(self.held_out))
        assert after - before > 4 * error, told


def _teach_once(lesson: Any, taught: list[Any], out: Path) -> None:
    """Put the taught model at ``out``."""
    from filelock import FileLock
    from model import teach

    sources = b"".join(file.read_bytes() for file in sorted(DEMO.glob("*.py")))
    key = hashlib.sha256(repr((lesson, len(taught))).encode() + sources).hexdigest()[:16]
    kept = RUNS / f"learner-{key}"
    kept.mkdir(parents=True, exist_ok=True)
    done = kept / "done"
    with FileLock(kept / "lock"):  # another suite may be teaching it
        if not done.exists():
            teach(lesson, taught, kept / "model")
            done.touch()
    shutil.copytree(kept / "model", out)
