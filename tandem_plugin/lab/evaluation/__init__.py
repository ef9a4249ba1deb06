"""The paper's evaluation: solo, handoff, drift, legibility, and what of it is significant.

Importing this package imports neither torch nor vllm nor SciPy.
"""

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.bootstrap import BootstrapErrors, bootstrap_errors
from tandem_plugin.lab.evaluation.drift import (
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
from tandem_plugin.lab.evaluation.pass_at_k import pass_at_k, pass_at_k_table
from tandem_plugin.lab.evaluation.significance import PairedTest, SeedTest, paired_test, seed_test
from tandem_plugin.lab.evaluation.token_recovery import Recovered, RecoverySettings, recovered

__all__ = [
    "BootstrapErrors",
    "EvaluationError",
    "PairedTest",
    "Recovered",
    "Recovery",
    "RecoverySettings",
    "SeedTest",
    "bootstrap_errors",
    "kl_divergence",
    "log_ratio",
    "marginal",
    "most_displaced",
    "most_over_emitted",
    "paired_test",
    "pass_at_k",
    "pass_at_k_table",
    "recovered",
    "recovery",
    "seed_test",
    "survival",
    "token_counts",
]
