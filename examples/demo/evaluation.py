"""What the demo measures: the problems solved before and after training, at three temperatures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
"""The scores of the runs that the pages quote: ``words.jsonl``; of ``--real``, ``sums.jsonl``."""

BEFORE, TANDEM, GRPO = "before", "tandem", "GRPO"
AUTHORS = {"solo": "alone", "word": "team"}
"""Who answers, by the schedule of the evaluation."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How responses are sampled: ``samples`` to each problem."""

    name: str
    temperature: float
    top_p: float
    samples: int


DECODINGS = (
    Decoding("T = 1", 1.0, 1.0, 2),
    Decoding("T = 0.6", 0.6, 0.95, 2),
    Decoding("greedy", 0.0, 1.0, 1),
)
"""As in training, as ``tandem eval`` decodes by default, and the likeliest response."""


@dataclass(frozen=True, slots=True)
class Score:
    """One evaluation: ``solved`` has the right ones of each problem's ``samples`` responses."""

    trained: str
    """``before``, or the method: ``tandem`` or ``GRPO``."""
    steps: int
    """Of the run's training; 0 before it."""
    seed: int
    authors: str
    decoding: str
    samples: int
    solved: tuple[int, ...]

    @property
    def rates(self) -> np.ndarray:
        """The part of each problem's responses that is right: float64 ``[problems]``."""
        return np.array(self.solved) / self.samples


def write_scores(path: Path, scores: Iterable[Score]) -> None:
    """A file of scores, one JSON object per line."""
    path.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in scores), encoding="utf-8")


def read_scores(path: Path) -> list[Score]:
    """The scores in a file; none where there is no file."""
    if not path.exists():
        return []
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Score(**row | {"solved": tuple(row["solved"])}) for row in rows]


def other_method(scores: Sequence[Score], kept: Sequence[Score]) -> list[Score]:
    """Of kept scores those of the other method, of the same seed, length and problems."""
    mine = scores[-1]
    same = (mine.steps, mine.seed, len(mine.solved))
    return [
        one
        for one in kept
        if one.trained not in (BEFORE, mine.trained)
        and (one.steps, one.seed, len(one.solved)) == same
    ]


def difference(after: Sequence[Score], before: Sequence[Score]) -> str:
    """Points that more is solved, ± a standard error (paired).

    It is that over problems. Of several seeds, which have the same problems, that over seeds is
    added in quadrature: the two are crossed, and the sum errs to the large side (Owen, "The
    pigeonhole bootstrap", 2007).
    """
    points = 100 * np.stack([a.rates - b.rates for a, b in zip(after, before, strict=True)])
    errors = [
        means.std(ddof=1) / math.sqrt(len(means))
        for means in (points.mean(axis=0), points.mean(axis=1))
        if len(means) > 1
    ]
    return f"{points.mean():+.1f} ± {math.hypot(*errors):.1f}"


def table(scores: Sequence[Score]) -> list[list[str]]:
    """A heading, and a row for who answers at each temperature: before, and after each method.

    Of several seeds the means.
    """
    methods = [name for name in (TANDEM, GRPO) if any(one.trained == name for one in scores)]
    found: dict[tuple[str, str, str], list[Score]] = {}
    for one in sorted(scores, key=lambda score: score.seed):
        found.setdefault((one.trained, one.authors, one.decoding), []).append(one)
    heading = ["solved", BEFORE]
    for name in methods:
        heading += [f"after {name}", "rise"]
    if len(methods) == 2:
        heading.append(f"{TANDEM} - {GRPO}")
    rows = [heading]
    for authors in AUTHORS.values():
        for decoding in DECODINGS:
            place = authors, decoding.name
            before = found[(BEFORE, *place)]
            row = [", ".join(place), _percent(before)]
            afters = [found[(name, *place)] for name in methods]
            for after in afters:
                row += [_percent(after), difference(after, before)]
            if len(afters) == 2:
                row.append(difference(*afters))
            rows.append(row)
    return rows


def _percent(scores: Sequence[Score]) -> str:
    return f"{100 * np.mean([one.rates.mean() for one in scores]):.1f}%"


def markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table's lines as Markdown."""
    heading, *others = rows
    rule = ["---", *(["---:"] * (len(heading) - 1))]
    return [f"| {' | '.join(row)} |" for row in (heading, rule, *others)]
