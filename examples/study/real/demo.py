"""The demo's parts that the study uses: training with verl on a CPU, and files for it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))

from data import make_row, write_parquet
from report import TRAINING_REWARD
from train import (
    TANDEM,
    Metrics,
    Paths,
    Training,
    TrainingError,
    train,
)

__all__ = [
    "TANDEM",
    "TRAINING_REWARD",
    "Metrics",
    "Paths",
    "Training",
    "TrainingError",
    "make_row",
    "train",
    "write_parquet",
]
