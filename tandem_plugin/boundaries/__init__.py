"""Boundaries: after which tokens a schedule may hand over. One resolver a file."""

from tandem_plugin.boundaries.vocabulary import BoundarySet, Vocabulary

__all__ = ["BoundarySet", "Vocabulary"]
