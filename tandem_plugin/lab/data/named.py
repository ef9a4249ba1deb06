"""Problem sets by name, the paper's and GSM8K: their sources and their sizes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from tandem_plugin.lab.data.records import HubSource


@dataclass(frozen=True, slots=True)
class NamedSet:
    """A problem set that can be selected by name."""

    count: int
    """The number of its problems, without the rows that are left out."""
    homes: tuple[HubSource, ...]
    """On the Hugging Face Hub, joined in this order; none for a set that comes as a file."""
    answer: str | None = None
    """The field without which a row is left out, even if its solution has a box."""
    drops: tuple[tuple[str, ...], ...] = ()
    """Answers whose problems are left out, for each home or given file."""
    evaluate_on: str | None = None
    """The set to evaluate on instead of this training split."""


_AIME24 = HubSource("math-ai/aime24", revision="83a7f387baaa524a8bda0022eac0541582297103")
_AIME25 = HubSource("math-ai/aime25", revision="563bb8404243c5f09de6ec262f2db674fe5bce9b")
_AIME26 = HubSource("math-ai/aime26", revision="79037aebdb6580008fb960d17cb21fd3099083e3")
_AMC23 = HubSource("math-ai/amc23", revision="80815d37005feb82cd7f8fbc6901d5d3eff43057")
_MINERVA = HubSource("math-ai/minervamath", revision="ee46ddc498933b1977577953250ca5c66be64f96")
_DEEPSCALER = HubSource(
    "agentica-org/DeepScaleR-Preview-Dataset", revision="b6ae8c60f5c1f2b594e2140b91c49c9ad0949e29"
)
_AMC24 = HubSource("rawsh/2024_AMC12")
_AMC25 = HubSource("sonthenguyen/amc12-2025-non-figure")
_MATH500 = HubSource("HuggingFaceH4/MATH-500", split="test")
_GSM8K = HubSource("openai/gsm8k", "main", "train", "740312add88f781978c0658806c59bc2815b9866")
_GSM8K_TEST = replace(_GSM8K, split="test")

NAMED_SETS: dict[str, NamedSet] = {
    # 40,315 rows; six have an empty answer, and the paper's authors omit those.
    "deepscaler": NamedSet(40_309, (_DEEPSCALER,), answer="answer"),
    "aime24": NamedSet(30, (_AIME24,)),
    "aime25": NamedSet(30, (_AIME25,)),
    "aime26": NamedSet(30, (_AIME26,)),
    "aime24-26": NamedSet(90, (_AIME24, _AIME25, _AIME26)),
    "amc23": NamedSet(40, (_AMC23,)),
    # As the paper's release compiles it, without the answers that a grader of boxes cannot judge: a
    # letter, intervals, free variables, a time of day. Source: data/build_evals.py.
    "amc23-25": NamedSet(
        121,
        (_AMC23, _AMC24, _AMC25),
        drops=(
            (),
            (r"(0, \frac{1}{2})", r"[\frac{3}{4}, \frac{7}{8}]", r"\frac{\pi}{2} - 2\alpha", "D"),
            ("4{:}30", "k"),
        ),
    ),
    "minerva": NamedSet(272, (_MINERVA,)),
    "math500": NamedSet(500, (_MATH500,)),
    # A selection of OlympiadBench that the release ships as data/eval/olympiad/test.parquet; it was
    # made from a file that is not public. Source: data/build_evals.py.
    "olympiad581": NamedSet(581, ()),
    "gsm8k": NamedSet(7_473, (_GSM8K,), evaluate_on="gsm8k-test"),
    "gsm8k-test": NamedSet(1_319, (_GSM8K_TEST,)),
}


def is_named(source: str) -> bool:
    """Whether a source is the name of a named set, and not an existing file."""
    return source in NAMED_SETS and not os.path.exists(source)
