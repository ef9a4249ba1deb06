"""The paper's evaluation: solo, handoff, drift, legibility, and what of it is significant.

Importing this package imports neither torch nor vllm nor SciPy.
"""

from tandem_plugin.errors import EvaluationError
from tandem_plugin.evaluation.bootstrap import BootstrapErrors, bootstrap_errors
from tandem_plugin.evaluation.drift import (
    Recovery,
    kl_divergence,
    log_ratio,
    marginal,
    most_displaced,
    most_over_emitted,
    recovery,
    survival,
    token_counts,
)
from tandem_plugin.evaluation.pass_at_k import pass_at_k, pass_at_k_table
from tandem_plugin.evaluation.significance import PairedTest, paired_test

__all__ = [
    "BootstrapErrors",
    "EvaluationError",
    "PairedTest",
    "Recovery",
    "bootstrap_errors",
    "kl_divergence",
    "log_ratio",
    "marginal",
    "most_displaced",
    "most_over_emitted",
    "paired_test",
    "pass_at_k",
    "pass_at_k_table",
    "recovery",
    "survival",
    "token_counts",
]
