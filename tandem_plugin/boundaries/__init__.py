"""Boundaries: after which tokens a schedule may hand over. One resolver a file; chosen by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.boundary_set import BoundarySet
from tandem_plugin.boundaries.contract import check_table
from tandem_plugin.boundaries.vocabulary import Vocabulary
from tandem_plugin.errors import TandemError, TokenizerError

__all__ = ["BoundarySet", "Vocabulary", "check_resolver", "resolve_boundaries", "resolvers"]


def resolvers() -> dict[str, Callable[[Vocabulary], NDArray[np.bool_]]]:
    """Every boundary resolver that can be selected, by name: built-in ones and those of plugins.

    Raises :class:`ConfigError` when two plugins register one name.
    """
    from tandem_plugin.plugins import catalogue

    return catalogue().of_kind("boundaries")


def check_resolver(name: str) -> None:
    """Raise :class:`ConfigError` unless a resolver is called ``name``."""
    from tandem_plugin.plugins import catalogue

    catalogue().find("boundaries", name)


def resolve_boundaries(name: str, vocabulary: Vocabulary) -> BoundarySet:
    """The boundary set that the resolver called ``name`` finds in a vocabulary.

    Raises :class:`ConfigError` for an unknown name or a resolver that breaks its contract,
    :class:`TokenizerError` for a vocabulary the resolver cannot read.
    """
    from tandem_plugin.plugins import catalogue

    found = catalogue().find("boundaries", name)
    try:
        table = found.value(vocabulary)
    except TandemError:
        raise
    except Exception as error:  # a plugin's
        raise TokenizerError(
            f"The boundary resolver {name!r} of {found.provider} failed on the tokenizer "
            f"{vocabulary.source!r}: {type(error).__name__}: {error}"
        ) from error
    return BoundarySet(name, check_table(name, found.provider, table, len(vocabulary)))
