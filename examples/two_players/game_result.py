"""What a run came to: read from its responses, step by step, and kept as one file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """The games of one training step. Tokens are means a game."""

    step: int
    games: int
    win_rate: float
    senior_tokens: float
    junior_tokens: float


@dataclass(frozen=True, slots=True)
class Result:
    """One run. Win rates before and after are of matches that no trainer and no engine played."""

    framework: str
    seed: int
    before: float
    after: float
    illegal_before: float
    illegal_after: float
    match_games: int
    seconds: float
    steps: list[Step]

    def save(self, path: Path) -> None:
        """Writes it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Result:
        """What :meth:`save` wrote."""
        told = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**told, "steps": [Step(**step) for step in told["steps"]]})


def read_steps(folder: Path) -> list[Step]:
    """The steps of a folder of rollouts, as either framework's run dumps them."""
    files = sorted(folder.glob("*.jsonl"), key=lambda file: int(file.stem))
    return [_step_of(int(file.stem), _rows(file)) for file in files]


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _step_of(step: int, rows: list[dict[str, Any]]) -> Step:
    written = sum(stop - start for row in rows for _, start, stop in row["tandem_segments"])
    senior = sum(sum(row["authorship"]) for row in rows)
    return Step(
        step=step,
        games=len(rows),
        win_rate=sum(row["score"] for row in rows) / len(rows),
        senior_tokens=senior / len(rows),
        junior_tokens=(written - senior) / len(rows),
    )
