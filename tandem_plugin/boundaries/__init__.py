"""Boundaries: after which tokens a schedule may hand over. One resolver a file; chosen by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.boundary_set import BoundarySet
from tandem_plugin.boundaries.every import every_boundary
from tandem_plugin.boundaries.step import step_boundaries
from tandem_plugin.boundaries.vocabulary import Vocabulary
from tandem_plugin.boundaries.word import word_boundaries
from tandem_plugin.errors import ConfigError

__all__ = ["BoundarySet", "Vocabulary", "check_resolver", "resolve_boundaries", "resolvers"]


def resolvers() -> dict[str, Callable[[Vocabulary], NDArray[np.bool_]]]:
    """Every boundary resolver that can be selected, by name."""
    return {"word": word_boundaries, "step": step_boundaries, "every": every_boundary}


def check_resolver(name: str) -> None:
    """Raise :class:`ConfigError` unless a resolver is called ``name``."""
    if name not in resolvers():
        raise ConfigError(
            f"boundaries={name!r} does not exist. Boundary resolvers: {', '.join(resolvers())}."
        )


def resolve_boundaries(name: str, vocabulary: Vocabulary) -> BoundarySet:
    """The boundary set that the resolver called ``name`` finds in a vocabulary.

    Raises :class:`ConfigError` for an unknown name, :class:`TokenizerError` for a vocabulary the
    resolver cannot read.
    """
    check_resolver(name)
    return BoundarySet(name, resolvers()[name](vocabulary))
