"""Model Runner V1: NumPy on the host, where vLLM reports the sampled tokens."""
