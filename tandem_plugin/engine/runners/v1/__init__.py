"""Model Runner V1: NumPy on the host, since vLLM says there what was sampled."""
