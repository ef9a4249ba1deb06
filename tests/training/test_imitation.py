"""The imitation term: averaged over ranks and summed over micro-batches, it is the plain mean."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tandem_plugin.training.imitation import (  # noqa: E402  # after the skip
    IMITATION_METRIC,
    imitation_loss,
)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_mean_over_the_step_does_not_depend_on_ranks_and_micro_batches(
    ranks: int, micro_batches: int
) -> None:
    generator = torch.Generator().manual_seed(ranks)
    shape = (ranks, micro_batches, 2, 5)
    log_probs = -torch.rand(shape, generator=generator, dtype=torch.float64)
    log_probs.requires_grad_()
    mask = (torch.rand(shape, generator=generator) < 0.4).long()
    mask[0, 0, 0, 0] = 1
    tokens = mask.sum()
    of_ranks = [
        sum(
            imitation_loss(log_probs[rank, part], mask[rank, part], tokens, ranks)[0]
            for part in range(micro_batches)
        )
        for rank in range(ranks)
    ]
    averaged = torch.stack(of_ranks).mean()  # as frameworks average gradients
    expected = [-log_probs[place] for place in zip(*mask.nonzero(as_tuple=True), strict=True)]
    torch.testing.assert_close(averaged, sum(expected) / len(expected))
    (gradient,) = torch.autograd.grad(averaged, log_probs)
    torch.testing.assert_close(gradient, -mask / tokens.double())


def test_values_of_the_seniors_tokens_are_ignored_and_no_token_is_no_term() -> None:
    log_probs = torch.tensor([[-torch.inf, -2.0, torch.nan]])
    mask = torch.tensor([[0, 1, 0]])
    term, metric = imitation_loss(log_probs, mask, mask.sum(), 2)
    assert term.item() == metric[IMITATION_METRIC].item() == 4.0
    assert imitation_loss(log_probs, mask * 0, mask.sum() * 0, 2)[0].item() == 0.0
