"""The noise floor of drift: how far a model seems to drift from itself, with another seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation import drift
from tandem_plugin.lab.evaluation.results import Summary, check_comparable, solo_summary

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["check_floor", "noise_floor", "second_seed", "seed_of"]


def second_seed(floor: Path, first: Summary) -> Summary:
    """The solo run of the same model with another seed.

    floor: the model's own results, such as ``second/base`` where ``tandem eval solo`` was given
    ``--out second``. first: its solo run. Raises :class:`EvaluationError` where there is none, or
    one of another model, with other settings, or with the same seed.
    """
    found = check_floor(floor, first.senior, first.content["senior"]["fingerprint"], seed_of(first))
    check_comparable([first, found], ["sampling.seed"])
    return found


def check_floor(floor: Path, name: str, fingerprint: str, seed: int) -> Summary:
    """The solo run that ``floor`` holds, of the model with this fingerprint.

    name, seed: what the model is called, and the seed of its other run. Raises
    :class:`EvaluationError` for another model's, or the same seed.
    """
    found = solo_summary(floor.parent, floor.name)
    mark = found.content["senior"]["fingerprint"]
    if mark != fingerprint:
        raise EvaluationError(
            f"The noise floor {str(floor)!r} is of a model with the fingerprint {mark}, and "
            f"{name!r} has {fingerprint}: evaluate {name!r} itself with another --seed and --out."
        )
    if seed_of(found) == seed:
        raise EvaluationError(
            f"The noise floor {str(floor)!r} has the seed {seed}, as the results beside it have, "
            "so that its responses are the same: give `tandem eval solo` another --seed."
        )
    return found


def seed_of(solo: Summary) -> int:
    """The seed that a solo run was sampled with; raises :class:`EvaluationError` without one."""
    seed = (solo.settings.get("sampling") or {}).get("seed")
    if type(seed) is not int or seed < 0:
        raise EvaluationError(f"The solo run {str(solo.folder)!r} does not say its sampling.seed.")
    return seed


def noise_floor(
    second: NDArray[Any], first: NDArray[Any], smoothing: float, frequent: int
) -> dict[str, Any]:
    """For a summary: the drift of a model's second sample from its first.

    second, first: counts ``[vocabulary]``; first wrote at least one token ``frequent`` times.
    """
    import numpy as np

    ratios = drift.log_ratio(second, first, smoothing)[first >= frequent]
    return {
        "kl": drift.kl_divergence(second, first, smoothing),
        "mean_absolute_log_ratio": float(np.abs(ratios).mean()),
        "tokens": int(second.sum()),
    }
