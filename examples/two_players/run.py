"""A model learns a game by playing against its frozen start, both in one engine.

Runs on two CPU cores, without a GPU and without a network, in the environment of the framework::

    python examples/two_players/run.py --framework verl|openrlhf [--out runs/game] [--steps N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from figure import draw
from game import FEWEST, MOST, mean_win_rate, opening, weak_player
from game_result import Result, read_steps
from match import Match, match
from plan import Lengths, Metrics, OnStep, Plan, Trained
from play import longest_response
from rich.console import Console
from start import Teaching, encode_messages, load, teach_rules
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar
from with_openrlhf import TrainingError, train_with_openrlhf
from with_verl import train_with_verl

from tandem_plugin.progress import waiting

STARTS = range(FEWEST, MOST + 1)


@dataclass(frozen=True, slots=True)
class Framework:
    """A trainer: how it is run, and what it calls a step's mean reward."""

    train: Callable[[Path, Path, Plan, Lengths, OnStep], Trained]
    reward: str


FRAMEWORKS = {
    "verl": Framework(train_with_verl, "critic/score/mean"),
    "openrlhf": Framework(train_with_openrlhf, "reward"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns the exit status."""
    options = _parser().parse_args(arguments)
    plan = replace(Plan(), steps=options.steps, prompts=options.prompts, seed=options.seed)
    try:
        run(
            options.framework,
            options.out.resolve(),
            plan,
            Teaching(steps=options.lessons),
            repeats=options.repeats,
        )
    except TrainingError as error:
        print(f"The example stopped. {error}", file=sys.stderr)
        return 1
    return 0


def run(framework: str, out: Path, plan: Plan, teaching: Teaching, *, repeats: int) -> Result:
    """Teaches the rules, trains, and plays matches before and after; its files are under ``out``.

    repeats: games of a match from each start.
    """
    disable_progress_bar()
    out.mkdir(parents=True, exist_ok=True)
    start = out / "start"
    with waiting("Teaching the rules", Console()):
        teach_rules(start, plan.seed, teaching)
    tokenizer = AutoTokenizer.from_pretrained(start)
    with waiting("The start plays itself", Console()):
        before = _match(start, start, tokenizer, repeats)
    taught, best = (mean_win_rate(senior, weak_player) for senior in (weak_player, None))
    print(
        f"As the first player the start wins {before.win_rate:.1%} of {len(before.games)} games "
        f"against itself; {before.illegal:.1%} end by an illegal move. The players whose games it "
        f"was taught would win {taught:.1%}, the best play against them {best:.1%}.",
        flush=True,
    )
    chosen = FRAMEWORKS[framework]

    def on_step(step: int, metrics: Metrics) -> None:
        won = metrics.get(chosen.reward)
        said = "" if won is None else f": the senior won {won:.1%} of {plan.games} games"
        print(f"Step {step} of {plan.steps}{said}.", flush=True)

    began = time.monotonic()
    with waiting("Training", Console()):
        trained = chosen.train(start, out, plan, lengths_of(tokenizer), on_step)
    seconds = time.monotonic() - began
    with waiting("The trained senior plays the start", Console()):
        after = _match(trained.senior, start, tokenizer, repeats)
    result = Result(
        framework=framework,
        seed=plan.seed,
        before=before.win_rate,
        after=after.win_rate,
        illegal_before=before.illegal,
        illegal_after=after.illegal,
        match_games=len(after.games),
        seconds=seconds,
        steps=read_steps(trained.rollouts),
    )
    result.save(out / "result.json")
    draw([result], out / "curve.svg")
    print(
        f"Against its frozen start the senior now wins {after.win_rate:.1%} of {len(after.games)} "
        f"games, {before.win_rate:.1%} before; {seconds / 60:.1f} minutes of training. Next:\n"
        f"  tandem replay {trained.rollouts} --tokenizer {start}\n"
        f"  tandem view {trained.rollouts} --tokenizer {start} --out {out / 'games.html'}"
    )
    return result


def lengths_of(tokenizer: PreTrainedTokenizerBase) -> Lengths:
    """The most tokens of a prompt, and of a game of :data:`~game.MOST` stones."""
    prompt = max(len(encode_messages(opening(stones), tokenizer)) for stones in STARTS)
    return Lengths(prompt, longest_response(MOST, tokenizer))


def _match(senior: Path, junior: Path, tokenizer: PreTrainedTokenizerBase, repeats: int) -> Match:
    return match(load(senior), load(junior), tokenizer, repeats=repeats)


def _parser() -> argparse.ArgumentParser:
    plan = Plan()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--framework", choices=FRAMEWORKS, required=True, help="the trainer")
    parser.add_argument("--out", type=Path, default=Path("runs/game"), help="folder for all files")
    parser.add_argument(
        "--steps", type=int, default=plan.steps, help="training steps (%(default)s)"
    )
    parser.add_argument(
        "--prompts",
        type=int,
        default=plan.prompts,
        help="starts a step, 8 games each (%(default)s)",
    )
    parser.add_argument(
        "--repeats", type=int, default=100, help="games of a match from each start (%(default)s)"
    )
    parser.add_argument(
        "--lessons",
        type=int,
        default=Teaching().steps,
        help="batches of games that teach the rules (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=plan.seed, help="of teaching and training")
    return parser


if __name__ == "__main__":
    sys.exit(main())
