"""The term of ``partner_kl_coef``, its gradient against the differentiated divergence itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tandem_plugin import AuthorshipError
from tandem_plugin.training.distillation import PARTNER_KL_METRIC, PartnerKL, check_partner
from tandem_plugin.training.rows import Row

torch = pytest.importorskip("torch", reason="torch is not installed")

PLACES, VOCABULARY, COEFFICIENT = 5, 11, 0.3


def row(mask: Any, partner: Any) -> Row:
    mask = np.array(mask, dtype=np.bool_)
    return Row(
        name="Row 1",
        group="a",
        response_ids=np.arange(len(mask)),
        response_mask=mask,
        partner=None if partner is None else np.array(partner, dtype=np.float32),
    )


@pytest.fixture
def logits() -> Any:
    """The senior's and the junior's, float64 ``[places, vocabulary]``; the senior's learn."""
    noise = torch.Generator().manual_seed(0)
    senior = torch.randn(PLACES, VOCABULARY, generator=noise, dtype=torch.float64)
    junior = torch.randn(PLACES, VOCABULARY, generator=noise, dtype=torch.float64)
    # As the engine gives them: so that both sides of a comparison have the same junior.
    return senior.requires_grad_(), junior.log_softmax(-1).float()


def gradient(loss: Any, of: Any) -> Any:
    (found,) = torch.autograd.grad(loss, of)
    return found


def divergence(senior: Any, junior: Any, forward: bool = False) -> Any:
    """Of the senior from the junior at every place, summed up; ``forward``: the other way round."""
    ours, theirs = senior.log_softmax(-1), junior.double()
    if forward:
        return (theirs.exp() * (theirs - ours)).sum()
    return (ours.exp() * (ours - theirs)).sum()


def expected_policy_gradient(senior: Any, junior: Any, rewards: Any) -> Any:
    """Of the loss of trainers, -A p / p_old, in its mean over every token that could be drawn.

    rewards: the advantage of each place before the term. A response is drawn for each token of the
    vocabulary, which stands at every place of it.
    """
    log_probs = senior.log_softmax(-1)
    old = log_probs.detach()
    term, loss = PartnerKL(COEFFICIENT), 0.0
    for token in range(VOCABULARY):
        drawn = row(np.ones(PLACES), junior[:, token].numpy())
        advantages = term.less(drawn, rewards, old[:, token])
        ratio = (log_probs[:, token] - old[:, token]).exp()
        loss = loss - (old[:, token].exp() * advantages * ratio).sum()
    return gradient(loss, senior)


def test_mean_gradient_is_that_of_the_reverse_divergence(logits: Any) -> None:
    senior, junior = logits
    nothing = torch.zeros(PLACES, dtype=torch.float64)
    got = expected_policy_gradient(senior, junior, nothing)
    expected = COEFFICIENT * gradient(divergence(senior, junior), senior)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
    assert expected.abs().max() > 1e-3
    # A reward that is the same whatever is drawn changes nothing.
    rewards = torch.linspace(-2, 2, PLACES, dtype=torch.float64)
    with_rewards = expected_policy_gradient(senior, junior, rewards)
    torch.testing.assert_close(with_rewards, expected, rtol=1e-9, atol=1e-12)


def test_estimates_differentiated_as_losses_have_other_gradients(logits: Any) -> None:
    """Why the term stands in the advantage: k1 as a loss pulls nowhere, k3 the other way round."""
    senior, junior = logits
    drawn = senior.detach().softmax(-1)

    def of_loss(estimate: Callable[[Any], Any]) -> Any:
        return gradient((drawn * estimate(junior.double() - senior.log_softmax(-1))).sum(), senior)

    assert of_loss(lambda ratio: -ratio).abs().max() < 1e-12
    k3 = of_loss(lambda ratio: ratio.exp() - 1 - ratio)
    forward = gradient(divergence(senior, junior, forward=True), senior)
    torch.testing.assert_close(k3, forward, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(k3, gradient(divergence(senior, junior), senior), atol=1e-3)


def test_term_is_taken_off_trained_tokens_alone_and_logged_as_their_mean() -> None:
    advantages = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    log_probs = torch.tensor([-9.0, -1.0, -9.0, -0.5, -9.0, -9.0])
    given = advantages.clone()
    term = PartnerKL(0.5)
    # The second and fourth value are of the row's first and third token; the last is padding.
    less = term.less(row([1, 0, 1, 0], [-3.0, np.nan, -0.25, -8.0]), advantages, log_probs, 1)
    assert less.tolist() == [1.0, 2.0 - 0.5 * 2.0, 3.0, 4.0 - 0.5 * -0.25, 5.0, 6.0]
    assert torch.equal(advantages, given)
    assert term.metrics == {PARTNER_KL_METRIC: (2.0 - 0.25) / 2}
    other = term.less(row([1], [-1.0]), torch.tensor([0.0]), torch.tensor([-1.0]))
    assert other.tolist() == [0.0]
    assert term.metrics == {PARTNER_KL_METRIC: pytest.approx(1.75 / 3)}


def test_response_without_a_trained_token_needs_nothing() -> None:
    term, advantages = PartnerKL(0.5), torch.tensor([1.0, 2.0])
    for partner in (None, [np.nan, np.nan]):
        assert torch.equal(term.less(row([0, 0], partner), advantages, advantages), advantages)
    assert term.metrics == {}


@pytest.mark.parametrize(
    ("partner", "message"),
    [
        (None, "came without the junior's log probabilities, which partner_kl_coef needs"),
        ([-1.0, -1.0], "trains token 2, but has the junior's log probabilities of 2 tokens"),
        ([-1.0, 0.0, np.nan, -1.0], "trains 1 tokens whose log .* nan, .* position 2"),
        ([-np.inf, 0.0, -1.0, -1.0], "trains 1 tokens whose log .* -inf, .* position 0"),
        ([0.5, 0.0, -1.0, -1.0], "trains 1 tokens whose log .* 0.5, .* position 0"),
    ],
)
def test_trained_token_whose_log_p_is_not_known_is_refused(partner: Any, message: str) -> None:
    bad = row([1, 0, 1, 0], partner)
    with pytest.raises(AuthorshipError, match=message):
        check_partner(bad)
    with pytest.raises(AuthorshipError, match=message):
        PartnerKL(0.1).less(bad, torch.zeros(4), torch.zeros(4))
    check_partner(replace(bad, partner=np.array([-1.0, np.nan, 0.0, np.nan], dtype=np.float32)))
