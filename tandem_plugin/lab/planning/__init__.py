"""What a pair of models needs of a GPU's memory, from their configurations: weights and KV cache.

Nothing here imports torch, vLLM or a trainer, and nothing needs a GPU.
"""

from __future__ import annotations

from tandem_plugin.lab.planning.checkpoint import PlannedModel, read_checkpoint
from tandem_plugin.lab.planning.geometry import KvCache

__all__ = ["KvCache", "PlannedModel", "read_checkpoint"]
