"""The authors along a drafted chain, on the device: state per slot, no host synchronisation."""

from __future__ import annotations

import torch

from tandem_plugin.engine.runners.v2.authors import DeviceAuthors


class ChainAuthors(DeviceAuthors):
    """The authors of several tokens at once, given drafts for the tokens before each.

    A round calls :meth:`chain_authors` for the authors of a chain of drafts, and then
    :meth:`advance` with the number of tokens written. Both apply the schedule's own ``advance`` to
    the table of draws that lockstep and replay use, so authorship stays the same function of the
    tokens.
    """

    _authors: torch.Tensor | None = None
    """bool ``[k + 1, size]``, the chain's authors; None outside a round with drafts."""
    _runs: torch.Tensor
    """int64 ``[k + 1, size]``, the schedule's run at each of them."""

    def chain_authors(self, drafts: torch.Tensor) -> torch.Tensor:
        """Who writes each drafted position and the one after the last: bool ``[size, k + 1]``.

        drafts: int64 ``[size, k]``, the drafted tokens of every slot. If a slot has fewer, its
        other entries are arbitrary, and their authors must not be used. Slots without a tandem
        request are the senior's.
        """
        author, run, place = self._author, self._run, self._place
        authors, runs = [author], [run]
        for tokens in drafts.clamp(min=0).unbind(1):
            place = torch.minimum(place + 1, self._last_place)
            u = self._draws.view.index_select(0, place)
            author, run = self._chosen(author, run, tokens, u)
            authors.append(author)
            runs.append(run)
        self._authors, self._runs = torch.stack(authors), torch.stack(runs)
        return self._authors.T

    def at(self, slots: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Who writes these positions of a round: bool ``[positions]``, true = senior.

        slots, steps: int64 ``[positions]``, the slot of each and its place in the round. Call
        before :meth:`advance`.
        """
        if self._authors is None:
            return self.of(slots)
        return self._authors[steps, slots]

    def advance(
        self, slots: torch.Tensor, num_sampled: torch.Tensor, last_tokens: torch.Tensor
    ) -> None:
        """Advance by a round's tokens: choose the next author after the last one of every row.

        slots: int ``[rows]``. num_sampled: int ``[rows]``, how many tokens each row wrote: all but
        the last one are the first drafts that :meth:`chain_authors` was given. last_tokens: int64
        ``[size]``, the last token of every slot. Without a chain, at most one token per row.
        """
        if self._authors is not None:
            self._follow(slots, num_sampled)
            self._authors = None
        super().advance(slots, num_sampled, last_tokens)

    def _follow(self, slots: torch.Tensor, num_sampled: torch.Tensor) -> None:
        """Follow the chain to the last token that a row wrote."""
        authors = self._authors
        assert authors is not None
        count = torch.zeros_like(self._run).scatter_(0, slots.long(), num_sampled.long())
        steps = (count - 1).clamp(min=0)
        if self._record is not None:
            for step in range(len(authors) - 1):
                place = torch.minimum(self._place + step, self._last_place)
                recorded = self._record.index_select(0, place)
                self._record.scatter_(0, place, torch.where(step < steps, authors[step], recorded))
        self._author = authors.gather(0, steps[None])[0]
        self._run = self._runs.gather(0, steps[None])[0]
        self._place = torch.minimum(self._place + steps, self._last_place)
