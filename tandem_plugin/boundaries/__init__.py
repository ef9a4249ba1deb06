"""Boundaries: after which tokens a schedule may hand over. One resolver a file."""

from tandem_plugin.boundaries.boundary_set import BoundarySet
from tandem_plugin.boundaries.vocabulary import Vocabulary

__all__ = ["BoundarySet", "Vocabulary"]
