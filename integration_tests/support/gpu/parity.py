"""Whether greedy responses are what their authors would write, by logits and not by taste.

An engine on a GPU and a Hugging Face forward add in different orders, so that where an author finds
two tokens nearly as likely either may come out ahead. The rule: a token holds where its author's
float32 forward over the same tokens puts it at most four roundings below its likeliest. A rounding
is measured, not chosen: the largest difference of any logit between that forward and the same
forward as the engine computes, in bfloat16, or in float32 with the 10 bits that tensor cores read
of it (TF32). Two roundings are what both tokens may stray, and twice that since an engine's kernels
are others than Hugging Face's. The rule must be able to fail: of all tokens, at least half must be
ones that the other model would not have been allowed to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from support.reference import Reference, along
from support.traffic import Response, authors_by_plain_loop

ALLOWED = 4
"""How many roundings a token may lie below its author's likeliest."""

FLOOR = 1e-3
"""The least that is allowed, in logits: float32 itself adds in some order."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One response, in logits."""

    name: str
    margins: tuple[float, ...]
    """By how much each token was less likely than its author's likeliest."""
    others: tuple[float, ...]
    """The same by the other model."""
    rounding: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the responses of one engine showed."""

    tokens: int
    likeliest: int
    """How many tokens are their author's likeliest."""
    largest: float
    """The largest margin, in logits."""
    allowed: float
    telling: int
    """How many tokens the other model would not have been allowed to write."""
    wrong: tuple[str, ...]
    """The responses with a token that is not allowed."""

    @property
    def passed(self) -> bool:
        """Every token is allowed, and the rule could have failed."""
        return not self.wrong and 2 * self.telling >= self.tokens > 0

    def sentence(self) -> str:
        """What was found."""
        found = (
            f"{self.likeliest:,} of {self.tokens:,} tokens are their author's likeliest, the "
            f"others at most {self.largest:.2g} logits below, where {self.allowed:.2g} are "
            "allowed; "
            f"{self.telling:,} could not be the other model's"
        )
        if self.wrong:
            return f"{found}. Not allowed in {len(self.wrong)}: {', '.join(self.wrong[:5])}"
        return found if self.passed else f"{found}: too few to tell the models apart"


def measured(
    name: str,
    token_ids: Sequence[int],
    authors: Sequence[bool],
    exact: dict[bool, torch.Tensor],
    rounded: dict[bool, torch.Tensor],
) -> Measured:
    """A response's margins.

    exact, rounded: by author, float32 logits ``[tokens, ids]``, without and with the rounding.
    """
    tokens = torch.tensor(token_ids)[:, None]
    margin = {
        author: logits.max(-1).values - logits.gather(-1, tokens)[:, 0]
        for author, logits in exact.items()
    }
    senior = torch.tensor(authors)
    return Measured(
        name,
        tuple(torch.where(senior, margin[True], margin[False]).tolist()),
        tuple(torch.where(senior, margin[False], margin[True]).tolist()),
        max(float((exact[author] - rounded[author]).abs().max()) for author in exact),
    )


def verdict(responses: Sequence[Measured]) -> Verdict:
    """All responses together: the rounding is the largest of any."""
    allowed = max(FLOOR, ALLOWED * max((one.rounding for one in responses), default=0.0))
    margins = [margin for one in responses for margin in one.margins]
    return Verdict(
        tokens=len(margins),
        likeliest=sum(margin == 0 for margin in margins),
        largest=max(margins, default=0.0),
        allowed=allowed,
        telling=sum(other > allowed for one in responses for other in one.others),
        wrong=tuple(one.name for one in responses if max(one.margins) > allowed),
    )


class Judge:
    """Judges greedy responses of one pair of checkpoints, by forwards of Hugging Face models."""

    def __init__(
        self, senior: Path, junior: Path, dtype: str, defaults: dict[str, Any], tokenizer: Any
    ) -> None:
        """dtype: the engine's. defaults: its tandem settings."""
        from support.boundary_ids import step_boundaries, word_boundaries

        self._defaults = defaults
        self._words, self._steps = word_boundaries(tokenizer), step_boundaries(tokenizer)
        self._exact = Reference(senior, junior, weights=getattr(torch, dtype))
        self._rounded = _Rounded(senior, junior, dtype)

    def judge(self, responses: Sequence[Response]) -> Verdict:
        """Responses to plain greedy jobs."""
        return verdict([self._measured(response) for response in responses])

    def _measured(self, response: Response) -> Measured:
        job, ids = response.job, response.token_ids
        authors = authors_by_plain_loop(job.tandem, self._defaults, self._words, self._steps)
        return measured(
            job.name,
            ids,
            list(along(authors(), ids)),
            self._exact.both(job.prompt, ids),
            self._rounded.both(job.prompt, ids),
        )


class _Rounded:
    """The same models as an engine of this type computes them, on its device."""

    def __init__(self, senior: Path, junior: Path, dtype: str) -> None:
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._models = {
            author: AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
            .eval()
            .to(self._device)
            for author, path in ((True, senior), (False, junior))
        }

    @torch.no_grad()
    def both(self, prompt: list[int], response: list[int]) -> dict[bool, torch.Tensor]:
        """Each model's logits where a response's tokens were chosen: float32 ``[tokens, ids]``."""
        ids = torch.tensor([prompt + response], device=self._device)
        with _tensor_cores():
            return {
                author: model(ids).logits[0, len(prompt) - 1 : -1].float().cpu()
                for author, model in self._models.items()
            }


@contextmanager
def _tensor_cores() -> Iterator[None]:
    """Products of float32 as a GPU's attention kernels compute them."""
    before = torch.get_float32_matmul_precision()
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
