"""The demo's parts that the study uses: its problems, its model, and its training with verl."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))

from data import make_row, write_parquet
from model import Lesson, teach
from problems import KINDS, Problem, draw_distinct
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
    "KINDS",
    "TANDEM",
    "TRAINING_REWARD",
    "Lesson",
    "Metrics",
    "Paths",
    "Problem",
    "Training",
    "TrainingError",
    "draw_distinct",
    "make_row",
    "teach",
    "train",
    "write_parquet",
]
