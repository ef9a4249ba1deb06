"""The paper's evaluation: solo, handoff, drift, legibility, and what of it is significant.

Importing this package imports neither torch nor vllm nor SciPy.
"""

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.drift import (
    DriftRecovery,
    Recovery,
    drift_recovery,
    kl_divergence,
    log_ratio,
    marginal,
    most_displaced,
    most_over_emitted,
    recovery,
    survival,
    token_counts,
)
from tandem_plugin.lab.evaluation.pass_at_k import pass_at_k, pass_at_k_table
from tandem_plugin.lab.evaluation.significance import (
    BootstrapErrors,
    TTest,
    bootstrap_errors,
    paired_test,
    seed_test,
)

__all__ = [
    "BootstrapErrors",
    "DriftRecovery",
    "EvaluationError",
    "Recovery",
    "TTest",
    "bootstrap_errors",
    "drift_recovery",
    "kl_divergence",
    "log_ratio",
    "marginal",
    "most_displaced",
    "most_over_emitted",
    "paired_test",
    "pass_at_k",
    "pass_at_k_table",
    "recovery",
    "seed_test",
    "survival",
    "token_counts",
]
