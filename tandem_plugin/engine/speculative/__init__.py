"""Speculative mode: the junior drafts, the senior verifies; lockstep's distribution.

The junior is vLLM's draft model, the senior the engine's model. The author decides each position: a
draft is kept if the junior is the author, and goes through rejection sampling if the senior is. The
bonus token, after the last draft, is written only if its author is the senior. A token without a
draft, such as a response's first, is sampled from its author's own logits.
Versions: vLLM from 0.29, Model Runner V2.
"""
