"""Memory of draws on a machine without a device: what nobody wrote is not a number."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def host_memory(places: int) -> tuple[NDArray[np.float64], torch.Tensor]:
    """As :func:`tandem_plugin.engine.runners.v2.state.shared_memory`."""
    host = np.full(places, np.nan)
    return host, torch.from_numpy(host)
