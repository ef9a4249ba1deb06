"""Boundaries: the tokens after which a schedule may hand off. One resolver per file."""

from tandem_plugin.boundaries.vocabulary import BoundarySet, Vocabulary

__all__ = ["BoundarySet", "Vocabulary"]
