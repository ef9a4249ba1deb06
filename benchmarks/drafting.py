"""Tokens a round and forward passes a token of the speculative mode, against its cost model.

``python benchmarks/drafting.py``, vLLM from 0.29. What is counted does not depend on the machine,
so the models are tiny, and run in Triton's interpreter where there is no GPU. Two seniors are their
junior with noise on its weights, so that the two agree as a trained senior and its frozen junior
do; beside the third stands a smaller junior. Ratios to a single model follow from the counts, for
engines whose passes take the time that reading the weights takes: projected, not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkpoints import LARGE_JUNIOR, LARGE_SENIOR, TINY_JUNIOR, TINY_SENIOR, make, perturbed
from command import progress_bar, run_benchmark
from cost_model import ratio_to_single, tokens_per_round
from engine_process import EngineProcess
from results import Results
from table import Table

__all__ = ["NAME", "measure", "table"]

NAME = "drafting"

DRAFTS, TOKENS = (2, 4, 6, 8), {1: 128, 16: 32, 64: 16}
"""Drafts a round, and tokens of each response, by batch size."""
SMALL = LARGE_JUNIOR.read_parameters / LARGE_SENIOR.read_parameters
"""The cost of a small junior's pass, in the senior's: that of the models whose time is measured."""
PAIRS: dict[str, tuple[float, float]] = {
    "equal sizes, noise 0.05": (0.05, 1.0),
    "equal sizes, noise 0.01": (0.01, 1.0),
    "a small junior": (0.0, SMALL),
}
"""The noise on the senior's weights, and the cost of the junior's pass."""


def measure(results: Results, quick: bool) -> None:
    """One case a pair, batch size and number of drafts."""
    batches = [1] if quick else list(TOKENS)
    folder = results.path.parent / "checkpoints"
    with progress_bar() as progress:
        task = progress.add_task("drafts", total=len(PAIRS) * len(batches) * len(DRAFTS))
        for pair, (noise, cost) in PAIRS.items():
            names = {
                (batch, drafts): f"{pair}, batch {batch}, {drafts} drafts"
                for batch in batches
                for drafts in DRAFTS
            }
            if all(name in results for name in names.values()):
                progress.advance(task, len(names))
                continue
            tandem = {
                "mode": "speculative",
                "drafts": dict(enumerate(reversed(DRAFTS), start=1)),
            }
            with EngineProcess(*_models(folder, noise), runner="v2", tandem=tandem) as engine:
                for (batch, drafts), name in names.items():
                    if name not in results:
                        tokens = 8 if quick else TOKENS[batch]
                        counted = engine.stretch(batch, tokens, drafts).drafted
                        figures = {"pair": pair, "batch": batch, "drafts": drafts}
                        results.add(name, figures | _figures(counted, drafts, cost))
                    progress.advance(task)


def _models(folder: Path, noise: float) -> tuple[Path, Path]:
    """The senior and the junior of a pair."""
    if not noise:  # flat enough to agree, whatever their weights are
        return make(folder, TINY_SENIOR, 0, 0.07), make(folder, TINY_JUNIOR, 1, 0.07)
    junior = make(folder, TINY_SENIOR, 0, 1.0)
    return perturbed(junior, noise), junior


def _figures(counted: Mapping[str, int], drafts: int, cost: float) -> dict[str, Any]:
    from tandem_plugin.engine.speculative.draft_stats import DraftStats

    drafted = DraftStats(**counted)
    return {
        "counters": dict(counted),
        "acceptance": drafted.acceptance,
        "tokens_per_round": drafted.tokens_per_round,
        "tokens_per_round_of_the_cost_model": tokens_per_round(drafted.acceptance, drafts),
        "forwards_per_token": drafted.forwards_per_token,
        "cost_of_the_junior": cost,
        "projected_ratio": ratio_to_single(drafted.tokens_per_round, drafts, cost),
    }


def table(content: Mapping[str, Any]) -> Table:
    """Counts, the cost model's, and the projected ratio."""
    rows = [
        [
            case["pair"],
            str(case["batch"]),
            str(case["drafts"]),
            f"{case['counters']['rounds']:,}",
            f"{case['acceptance']:.3f}",
            f"{case['tokens_per_round']:.2f}",
            f"{case['tokens_per_round_of_the_cost_model']:.2f}",
            f"{case['forwards_per_token']:.3f}",
            f"{case['projected_ratio']:.2f}",
        ]
        for case in content["cases"].values()
    ]
    return Table(
        title="Drafting",
        columns=[
            "pair",
            "batch",
            "drafts a round",
            "rounds",
            "acceptance",
            "tokens a round",
            "the cost model's",
            "forward passes a token",
            "projected ratio to the single model",
        ],
        rows=rows,
        unit="counts; schedule word, p = 0.5, temperature 1",
        notes=(
            "Passes over prompts are not counted. A single model makes one pass a token, lockstep "
            "two. Projected, not measured: what the tokens a round make of it where a pass takes "
            "the time of reading the weights, with a junior of the senior's size, or one that "
            f"reads {SMALL:.2f} of its weights.",
        ),
    )


if __name__ == "__main__":
    run_benchmark(NAME, "Tokens a round and passes a token, against the cost model.", measure)
