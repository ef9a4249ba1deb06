"""The resources that a pair of models needs, from their configurations: weights and KV cache."""
