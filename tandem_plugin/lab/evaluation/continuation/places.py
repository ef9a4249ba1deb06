"""The places of a senior's own responses from which the junior is to go on, and how it is asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tandem_plugin.boundaries import BoundarySet
from tandem_plugin.lab.evaluation.generation import read_generations
from tandem_plugin.lab.evaluation.results import Summary

__all__ = ["ContinuedBenchmark", "Place", "chosen_positions", "continued_benchmark"]


@dataclass(frozen=True, slots=True)
class Place:
    """One place of a response: the senior wrote its first ``position`` tokens."""

    problem: int
    sample: int
    position: int
    row: Mapping[str, Any]
    """The response, as ``tandem eval solo`` wrote it."""

    def question(self, max_tokens: int) -> dict[str, Any]:
        """What the engine is asked: token ids, of which the response's own are ``begun``.

        max_tokens: the longest response, with what the senior wrote of it.
        """
        begun = self.row["response_ids"][: self.position]
        return {
            "messages": self.row["prompt"],
            "golds": self.row["answer"],
            "prompt_ids": self.row["prompt_ids"],
            "begun": begun,
            "max_tokens": max_tokens - len(begun),
        }


@dataclass(frozen=True, slots=True)
class ContinuedBenchmark:
    """A benchmark whose questions are places of a senior's responses."""

    name: str
    problems: tuple[Place, ...]
    solo: Mapping[str, Any]
    """The benchmark and sampling of the responses."""
    max_tokens: int

    def settings(self) -> dict[str, Any]:
        """What decides the places."""
        where = [[one.problem, one.sample, one.position] for one in self.problems]
        digest = hashlib.sha256(json.dumps(where).encode()).hexdigest()[:16]
        return {"solo": dict(self.solo), "places": len(where), "sha256": digest}

    def questions(self) -> list[dict[str, Any]]:
        """Each place as the engine is asked to go on from it."""
        return [one.question(self.max_tokens) for one in self.problems]


def chosen_positions(
    response_ids: Sequence[int], boundaries: BoundarySet, most: int, longest: int
) -> list[int]:
    """The positions behind a response's boundaries, at most so many, evenly spread.

    Something must be left to write there: neither the response's end nor its longest length counts.
    """
    found = np.flatnonzero(boundaries.contains(response_ids)) + 1
    found = found[found < min(len(response_ids), longest)]
    if len(found) > most:
        found = found[np.linspace(0, len(found) - 1, most).round().astype(int)]
    return [int(position) for position in found]


def continued_benchmark(
    solo: Summary, name: str, boundaries: BoundarySet, samples: int, most: int
) -> ContinuedBenchmark:
    """The places of a finished solo run on one benchmark.

    samples: of each problem. most: places of one response. In the order of problems.
    """
    longest = int(solo.settings["sampling"]["max_tokens"])
    problems = len(solo.problems[name])
    rows = read_generations(solo.folder / f"{name}.jsonl", problems, samples)
    places = [
        Place(problem, sample, position, row)
        for problem, sample, row in sorted(rows, key=lambda found: found[:2])
        for position in chosen_positions(row["response_ids"], boundaries, most, longest)
    ]
    response = {k: v for k, v in solo.settings["sampling"].items() if k != "samples"}
    known = {
        "senior": solo.content["senior"]["fingerprint"],
        "benchmark": solo.settings["benchmarks"][name],
        **response,
    }
    return ContinuedBenchmark(name, tuple(places), known, longest)
