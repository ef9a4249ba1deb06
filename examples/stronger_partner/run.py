"""Trains a weak senior beside a stronger frozen partner, in several ways, on a CPU.

::

    python examples/stronger_partner/run.py [--out runs/stronger_partner] [--seeds 5] [--quick]

Stop it as you like: the same command goes on, and repeats no training. It ends with the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(EXAMPLES / name) for name in ("", "study", "tandem-plugin-curriculum")]

import tandem_plugin_curriculum  # noqa: E402
import torch  # noqa: E402
from light.task import Task  # noqa: E402
from rich.console import Console  # noqa: E402

from stronger_partner.methods import METHODS, Method, Sizes  # noqa: E402
from stronger_partner.training import accuracy, taught, train  # noqa: E402
from tandem_plugin.plugins import using_plugins  # noqa: E402
from tandem_plugin.progress import waiting  # noqa: E402

QUICK = Sizes(lessons=(4, 4), steps=2, prompts=2, group=2, evaluate_every=1, problems=8)
"""Seconds: everything runs, and nothing is learnt."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/stronger_partner"), help="a folder")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each method")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--quick", action="store_true", help="the smallest: nothing is learnt")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sizes = QUICK if options.quick else Sizes()
    seeds = range(options.first, options.first + options.seeds)
    with using_plugins(tandem_plugin_curriculum):
        for seed in seeds:
            for method in METHODS:
                with waiting(f"seed {seed}: {method.name}", Console()):
                    trained(options.out, method, seed, sizes)
    print(table(options.out, seeds, sizes))


def trained(out: Path, method: Method, seed: int, sizes: Sizes) -> dict[str, float]:
    """The held-out accuracy of a training by its steps; trains it where it is not known."""
    name = "".join(letter if letter.isalnum() else "-" for letter in method.name)
    file = out / f"{name}-{seed}.json"
    if not file.exists():
        task, curve = Task(), {}
        senior, partner = taught(task, sizes, out)
        curve["partner"] = accuracy(task, partner, sizes.problems, seed)
        curve["0"] = accuracy(task, senior, sizes.problems, seed)

        def note(step: int, model: torch.nn.Module) -> None:
            if step % sizes.evaluate_every == 0:
                curve[str(step)] = accuracy(task, model.eval(), sizes.problems, seed)
                model.train()

        train(task, senior, partner, method, seed, sizes, note)
        file.write_text(json.dumps(curve))
        print(f"seed {seed}: {method.name}: {curve}", flush=True)
    found: dict[str, float] = json.loads(file.read_text())
    return found


def table(out: Path, seeds: Sequence[int], sizes: Sizes) -> str:
    """Held-out accuracy in percent by training step: the mean over seeds, and its standard error.

    The last column: how much above GRPO of the same seed at the end.
    """
    steps = [str(step) for step in range(0, sizes.steps + 1, sizes.evaluate_every)]
    curves = {one.name: [trained(out, one, seed, sizes) for seed in seeds] for one in METHODS}
    plain = [curve[steps[-1]] for curve in curves[METHODS[0].name]]
    partner = [curve["partner"] for curve in curves[METHODS[0].name]]
    lines = [
        "| | " + " | ".join(f"step {step}" for step in steps) + " | above GRPO |",
        "|---" * (len(steps) + 2) + "|",
    ]
    for name, runs in curves.items():
        cells = [_with_error([run[step] for run in runs]) for step in steps]
        above = [run[steps[-1]] - other for run, other in zip(runs, plain, strict=True)]
        cells.append("" if name == METHODS[0].name else _with_error(above))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append(f"\nThe partner alone: {_with_error(partner)}")
    return "\n".join(lines)


def _with_error(shares: Sequence[float]) -> str:
    values = 100 * torch.tensor(shares, dtype=torch.float64)
    error = float(values.std() / len(values) ** 0.5) if len(values) > 1 else float("nan")
    return f"{float(values.mean()):.1f} ± {error:.1f}"


if __name__ == "__main__":
    main()
