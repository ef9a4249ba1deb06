"""What a run in tandem needs of its GPUs, worked out from two checkpoints' configurations.

Nothing here imports torch, vLLM or a trainer, and nothing needs a GPU.
"""

from __future__ import annotations

from tandem_plugin.lab.planning.checkpoint import Checkpoint, read_checkpoint
from tandem_plugin.lab.planning.plan import Plan, make_plan
from tandem_plugin.lab.planning.wanted import Wanted

__all__ = ["Checkpoint", "Plan", "Wanted", "make_plan", "read_checkpoint"]
