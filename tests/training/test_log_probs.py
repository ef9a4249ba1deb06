"""Rollout log-probabilities, zero outside the tokens that are trained on."""

from __future__ import annotations

import numpy as np
from refused import refused

from tandem_plugin.training.log_probs import check_log_probs, masked_log_probs

SENIOR = np.array([False, True, False, True])


def test_what_is_not_the_seniors_becomes_zero_and_then_passes() -> None:
    masked = masked_log_probs([-1.0, -2.0, -3.0, -4.0], SENIOR)
    assert masked == [0.0, -2.0, 0.0, -4.0]
    check_log_probs("Row 0", np.array(masked), SENIOR)
    assert masked_log_probs(None, SENIOR) is None


def test_another_number_of_them_is_refused() -> None:
    with refused("TP431", log_probs=3, tokens=4):
        masked_log_probs([0.0] * 3, SENIOR)
    with refused("TP432", row="Row 0", log_probs=3, tokens=4):
        check_log_probs("Row 0", np.zeros(3), SENIOR)


def test_one_outside_the_mask_is_refused() -> None:
    with refused("TP433", row="Row 0"):
        check_log_probs("Row 0", np.array([0.0, -1.0, -1e-9, 0.0]), SENIOR)
