"""Speculative tandem: the junior drafts and the senior checks; responses follow lockstep's law.

The junior is vLLM's own draft model, the senior the engine's. Whose token stands at a position
follows from its author alone: where the junior is the author, the draft stands; where the senior
is, rejection sampling decides; the token behind the last draft is written only where its author is
the senior; and a token that nobody drafted, such as a response's first one, comes from its author's
own logits. Versions: vLLM from 0.29, Model Runner V2.
"""
