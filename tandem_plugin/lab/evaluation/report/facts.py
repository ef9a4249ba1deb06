"""What an evaluation was made with, in words that people know."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tandem_plugin.lab.evaluation.model_names import step_of
from tandem_plugin.lab.evaluation.results import Summary

__all__ = ["how_it_was_made", "what_was_run"]

Runs = Mapping[str, Mapping[str, Summary]]

_SAMPLING = {
    "samples": "{} responses to each problem",
    "temperature": "temperature {}",
    "top_p": "top-p {}",
    "max_tokens": "at most {} tokens",
    "seed": "seed {}",
}


def what_was_run(runs: Runs) -> Iterator[tuple[str, str]]:
    """Models with their steps and places, benchmarks with their numbers of problems, sampling."""
    for name, model in _models(runs).items():
        path = str(model.get("path") or "")
        step = step_of(path)
        yield (
            name,
            ", ".join([*([f"step {step}"] if step else []), path or "its path is not known"]),
        )
    sizes = {
        name: len(rows)
        for by_senior in runs.values()
        for run in by_senior.values()
        for name, rows in run.problems.items()
    }
    if sizes:
        listed = ", ".join(f"{name} {count:,}" for name, count in sizes.items())
        whole = f"; {sum(sizes.values()):,} together" if len(sizes) > 1 else ""
        yield "problems", listed + whole
    for label, by_senior in runs.items():
        sampling = next(iter(by_senior.values())).settings.get("sampling")
        if isinstance(sampling, Mapping):
            yield (
                label,
                ", ".join(
                    _SAMPLING.get(name, f"{name} {{}}").format(value)
                    for name, value in sampling.items()
                ),
            )


def how_it_was_made(runs: Runs) -> Iterator[tuple[str, str]]:
    """Fingerprints of the models, and versions: for whoever wants to make it again."""
    for name, model in _models(runs).items():
        yield name, str(model.get("fingerprint") or "no fingerprint")
    versions = next(iter(next(iter(runs.values())).values())).content.get("versions") or {}
    yield "versions", json.dumps(versions).strip("{}").replace('"', "")


def _models(runs: Runs) -> dict[str, Mapping[str, Any]]:
    """What is noted of each model, by name: with its path where any run has it."""
    found: dict[str, Mapping[str, Any]] = {}
    for by_senior in runs.values():
        for run in by_senior.values():
            for role in (run.content["senior"], run.content.get("junior")):
                if role and not found.get(role["name"], {}).get("path"):
                    found[role["name"]] = role
    return found
