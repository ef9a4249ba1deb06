"""How large a study is: the one that is reported, and the smallest one that goes all the way."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from demo import Lesson, Training


@dataclass(frozen=True, slots=True)
class Size:
    """All sizes; everything in it decides what comes out, and is noted beside it.

    ``problems`` are held out of each kind, so ``problems * 3`` in all. ``read`` of a problem's
    responses are read for legibility. ``top`` and ``frequent`` are drift's: the tokens that
    recovery is about, and how often a token must have been written to be frequent. The vocabulary
    has 640 tokens, of which the solutions use a quarter: the paper's 500 would be all of them.
    """

    methods: tuple[str, ...] = ("GRPO", "KL-Reg", "TRL")
    seeds: tuple[int, ...] = (1, 2)
    lesson: Lesson = field(default_factory=Lesson)
    training: Training = field(default_factory=lambda: Training(steps=8, prompts=16, warmup=2))
    validation_problems: int = 64
    validate_every: int = 4
    problems: int = 32
    samples: int = 8
    team_samples: int = 8
    read: int = 4
    top: int = 50
    frequent: int = 10
    max_num_seqs: int = 256

    def settings(self) -> dict[str, Any]:
        """For the file that a study goes on by."""
        return asdict(self)


WHOLE = Size()
"""Three quarters of an hour on two cores."""

QUICK = Size(
    methods=("GRPO", "TRL"),
    seeds=(1,),
    lesson=Lesson(clean_steps=40, slipping_steps=10),
    training=Training(steps=1, prompts=4, group=2, warmup=0),
    validation_problems=2,
    validate_every=1,
    problems=2,
    samples=2,
    team_samples=2,
    read=1,
    top=20,
    frequent=2,
    max_num_seqs=16,
)
"""A few minutes: for tests, and to see whether everything runs. Nothing is learnt."""
