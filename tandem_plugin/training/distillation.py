"""On-policy distillation from the junior, the senior's partner: a term of each token's advantage.

From the advantage of each token x that the senior wrote behind y, ``partner_kl_coef`` times

    log p_sen(x | y) - log p_jun(x | y)

is taken off, p_sen being the policy before the update, the loss's old one. Tokens are drawn from
the senior, so its mean is the reverse KL divergence KL(p_sen || p_jun) of the next token; and since
the policy gradient of an advantage A is E[A d log p_sen], that of the term is this divergence's
exact gradient at the old policy: sum of (d p_sen) log(p_sen / p_jun), the remaining sum of d p_sen
being 0. To differentiate an estimate of the divergence as a loss would not give it: the estimate
itself ("k1") has the mean gradient 0, and "k3" that of the forward divergence. The prefix y is
taken as it is, as in GKD: what a token does to the divergence of later ones is not counted.

The term comes after the estimator has made advantages of rewards, and so after any baseline,
whitening or division by a deviation, and before the policy loss, with its ratio and clipping. It
is the trainer's own loss that spends it: masks, micro-batches and denominators are those of the
reward's advantage.

Sources: Agarwal et al. (2024), GKD; Gu et al. (2024), MiniLLM; Lu and Thinking Machines Lab (2025),
On-Policy Distillation; on gradients, Tang and Munos (2025), On a few pitfalls in KL divergence
gradient estimation for RL.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.training.rows import Row

__all__ = ["PARTNER_KL_METRIC", "PartnerKL", "check_partner"]

PARTNER_KL_METRIC = "tandem/partner_kl"
"""The mean of log p_sen - log p_jun over a batch's trained tokens, in nats."""

_ROUNDING = 1e-3
"""So much a log p may be above 0."""


class PartnerKL:
    """Takes the term off a batch's advantages, row by row, and knows its mean.

    coefficient: the run's ``partner_kl_coef``.
    """

    def __init__(self, coefficient: float) -> None:
        self._coefficient = coefficient
        self._total, self._tokens = 0.0, 0

    def less(self, row: Row, advantages: Any, log_probs: Any, first: int = 0) -> Any:
        """A row's advantages less the term, a new tensor.

        advantages, log_probs: float tensors ``[length]``, the latter the trainer's own log p of
        each token before the update, at temperature 1. first: where in them the row's first token
        is; they may go on behind its last. Raises :class:`AuthorshipError` for trained tokens of
        which the junior's log p is not known.
        """
        import torch

        check_partner(row)
        places = np.flatnonzero(row.response_mask)
        if not places.size:
            return advantages.clone()
        assert row.partner is not None  # it was checked
        at = torch.from_numpy(places + first).to(advantages.device)
        partner = torch.from_numpy(row.partner[places]).to(advantages.device)
        term = log_probs[at].detach().double() - partner.double()
        self._total += float(term.sum())
        self._tokens += len(places)
        change = (-self._coefficient * term).to(advantages.dtype)
        return advantages.index_add(0, at, change)

    @property
    def metrics(self) -> dict[str, float]:
        """The mean over all rows' trained tokens; nothing where there is none."""
        return {PARTNER_KL_METRIC: self._total / self._tokens} if self._tokens else {}


def check_partner(row: Row) -> None:
    """Raise :class:`AuthorshipError` unless the junior's log p of each trained token is known."""
    places = np.flatnonzero(row.response_mask)
    if not places.size:
        return
    if row.partner is None:
        raise AuthorshipError(
            f"{row.name} came without the junior's log probabilities, which partner_kl_coef needs: "
            "the process that generated it has other settings, or a client or server of your own "
            "makes new outputs of the engine's. Use verl's or OpenRLHF's own, or set "
            "partner_kl_coef=0."
        )
    if len(row.partner) <= places[-1]:
        raise AuthorshipError(
            f"{row.name} trains token {int(places[-1])}, but has the junior's log probabilities of "
            f"{len(row.partner)} tokens: something between the agent loop and the trainer cut or "
            "padded it."
        )
    known = row.partner[places]
    wrong = np.flatnonzero(~np.isfinite(known) | (known > _ROUNDING))
    if wrong.size:
        raise AuthorshipError(
            f"{row.name} trains {wrong.size} tokens whose log probability under the junior is "
            f"{float(known[wrong[0]])}, the first at position {int(places[wrong[0]])}: there is "
            "no distance to take. A token that the junior cannot write has none; else something "
            "between the engine and the trainer dropped it. Set partner_kl_coef=0."
        )
