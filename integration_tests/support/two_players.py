"""The example of two players, run at toy size as users run it, and what its dumps must hold."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.commands import TANDEM, run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "two_players"
sys.path.append(str(EXAMPLE))

STEPS, PROMPTS, GROUP, REPEATS = 2, 4, 8, 4

TAUGHT = 120
"""Lessons: enough that most moves are legal."""


@dataclass(frozen=True)
class Example:
    """A run of the example that came to its end."""

    folder: Path
    said: str

    @classmethod
    def play(cls, framework: str, folder: Path) -> Example:
        """Runs the program."""
        sizes = {"steps": STEPS, "prompts": PROMPTS, "repeats": REPEATS, "lessons": TAUGHT}
        options = [part for name, size in sizes.items() for part in (f"--{name}", str(size))]
        command = [sys.executable, str(EXAMPLE / "run.py"), "--framework", framework, *options]
        done = subprocess.run(
            [*command, "--out", str(folder)], capture_output=True, text=True, timeout=1500
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return cls(folder, done.stdout)

    @property
    def start(self) -> Path:
        """The frozen start's checkpoint."""
        return self.folder / "start"

    def rows(self, rollouts: Path) -> list[list[dict[str, Any]]]:
        """The dumped rows of each step."""
        files = [rollouts / f"{step}.jsonl" for step in range(1, STEPS + 1)]
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    def assert_turns_are_whose_they_were(self, rollouts: Path) -> None:
        """Every segment is one move; the junior's are untrained, and their replay agrees.

        The moves, played again from the tokens, come to the reward that was trained on.
        """
        from game import FEWEST, Game
        from play import text_of
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.start)
        schedules = set()
        for rows in self.rows(rollouts):
            assert len(rows) == PROMPTS * GROUP
            for row in rows:
                game = Game(int(row["gts"]))
                assert game.left >= FEWEST
                segments = row["tandem_segments"]
                asked = row["tandem_segment_schedules"] or [None] * len(segments)
                outside = row["authorship"].copy()
                for (_, start, stop), own in zip(segments, asked, strict=True):
                    name = row["tandem_schedule"]["schedule"] if own is None else own["schedule"]
                    assert name == {"senior": "solo", "junior": "junior"}[game.turn]
                    trained = [int(name == "solo")] * (stop - start)
                    assert row["authorship"][start:stop] == trained
                    outside[start:stop] = [0] * (stop - start)
                    game.say(text_of(row["response_ids"][start:stop], tokenizer))
                    schedules.add(name)
                assert not any(outside)
                assert game.winner is not None
                assert row["score"] == game.reward
        assert schedules == {"solo", "junior"}

    def assert_replayed(self, rollouts: Path) -> None:
        """``tandem replay`` agrees with every row, and says so by its exit code."""
        command = [*TANDEM, "replay", str(rollouts), "--tokenizer", str(self.start), "--json"]
        told = json.loads(run(command).stdout)
        assert (told["ok"], told["rows"]) == (True, STEPS * PROMPTS * GROUP)

    def assert_result(self, rollouts: Path) -> None:
        """The result file says what the dumps hold, and the curve is drawn."""
        from game_result import Result

        result = Result.load(self.folder / "result.json")
        for step, rows in zip(result.steps, self.rows(rollouts), strict=True):
            assert step.win_rate == sum(row["score"] for row in rows) / len(rows)
            assert step.senior_tokens == sum(sum(row["authorship"]) for row in rows) / len(rows)
            assert step.junior_tokens > 0
        assert "<svg" in (self.folder / "curve.svg").read_text()
        assert f"Step {STEPS} of {STEPS}: the senior won" in self.said

    def assert_metrics(self, steps: list[dict[str, Any]], rollouts: Path) -> None:
        """What the trainer logged of each schedule's calls is what its dump holds."""
        assert len(steps) == STEPS
        for metrics, rows in zip(steps, self.rows(rollouts), strict=True):
            senior = sum(sum(row["authorship"]) for row in rows)
            written = sum(stop - start for row in rows for _, start, stop in row["tandem_segments"])
            told = {
                name.removeprefix("tandem/calls/"): value
                for name, value in metrics.items()
                if name.startswith("tandem/calls/")
            }
            close = 1e-4 * written  # OpenRLHF logs what it averaged in bfloat16 or float32
            assert abs(told["solo/tokens_per_response"] - senior / len(rows)) < close
            assert abs(told["junior/tokens_per_response"] - (written - senior) / len(rows)) < close
            assert told["solo/senior_share"] == 1
            assert told["junior/senior_share"] == 0
