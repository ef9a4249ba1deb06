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

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from support.device import is_gpu
from support.reference import Authors, Reference, Written, along

ALLOWED = 4
"""How many roundings a token may lie below its author's likeliest."""

FLOOR = 1e-3
"""The least that is allowed, in logits: float32 itself adds in some order."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One response, in logits."""

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
    wrong: tuple[int, ...]
    """The responses with a token that is not allowed, by number."""

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
            return f"{found}. Not allowed in {len(self.wrong)}, such as {self.wrong[:5]}"
        return found if self.passed else f"{found}: too few to tell the models apart"


def measured(
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
        wrong=tuple(n for n, one in enumerate(responses) if max(one.margins) > allowed),
    )


class Judge(Reference):
    """A reference that allows for the rounding of an engine on a GPU."""

    def __init__(self, senior: Path, junior: Path, dtype: str) -> None:
        """dtype: the engine's."""
        super().__init__(senior, junior, weights=getattr(torch, dtype))
        self._rounded = _Rounded(senior, junior, dtype)

    def verdict(self, responses: Iterable[Written]) -> Verdict:
        """What greedy responses show."""
        return verdict([self._measured(*one) for one in responses])

    def check(self, responses: Iterable[Written]) -> None:
        """By :func:`verdict`; what it found is in the test's output."""
        found = self.verdict(responses)
        print(found.sentence())
        assert found.passed, found.sentence()

    def _measured(self, prompt: list[int], response: list[int], authors: Authors) -> Measured:
        exact, rounded = self.both(prompt, response), self._rounded.both(prompt, response)
        return measured(response, list(along(authors(), response)), exact, rounded)


def reference_of(senior: Path, junior: Path, dtype: str = "float32") -> Reference:
    """The reference for an engine of this type on this machine's device."""
    return Judge(senior, junior, dtype) if is_gpu() else Reference(senior, junior)


class _Rounded:
    """The same models as an engine of this type computes them, on its device."""

    def __init__(self, senior: Path, junior: Path, dtype: str) -> None:
        self._device = "cuda" if is_gpu() else "cpu"
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
    if is_gpu():
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
