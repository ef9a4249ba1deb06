# verl in tandem on CUDA 13, the stack constraints/verl-vllm-VLLM.txt. From a clone:
#
#   docker build --file docker/verl.Dockerfile --tag tandem-verl .
#   docker run --gpus all --ipc host --volume "$PWD:/work" tandem-verl tandem train examples/verl
#
# With another vLLM version from constraints/: --build-arg VLLM=0.32.0
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04@sha256:5dc1bca23d05bd37b011be68ec470c03b403a5da07ec3a86e41af9470e9d0cc6

# Triton and FlashInfer compile kernels at run time.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends build-essential git python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*

ENV VIRTUAL_ENV=/opt/tandem PATH=/opt/tandem/bin:$PATH
RUN python3 -m venv "$VIRTUAL_ENV" && pip install --no-cache-dir uv==0.13.9

ARG VLLM=0.29.0
COPY . /src
WORKDIR /src/constraints
# If vLLM and verl pin different versions, a file of overrides resolves it; only uv supports these.
RUN set -- --constraint "verl-vllm-$VLLM.txt" \
 && if [ -f "overrides-vllm-$VLLM.txt" ]; then set -- "$@" --override "overrides-vllm-$VLLM.txt"; fi \
 && uv pip install --no-cache --compile-bytecode "$@" "/src[verl,math,eval]"

WORKDIR /work
ENTRYPOINT []
CMD ["tandem", "doctor"]
