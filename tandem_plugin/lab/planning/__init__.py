"""What a pair of models needs of a machine, from their configurations: weights and KV cache."""
