"""vLLM's own counters, as they stand in this process."""

from __future__ import annotations


def metric(name: str) -> float:
    """The sum of one of vLLM's counters in this process."""
    from prometheus_client import REGISTRY

    return sum(
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == name
    )
