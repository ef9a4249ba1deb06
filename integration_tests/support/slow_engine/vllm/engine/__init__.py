"""Where vLLM has the arguments of an engine."""
