"""The tandem engine: two models in one vLLM engine. Nothing outside this folder imports vllm."""
