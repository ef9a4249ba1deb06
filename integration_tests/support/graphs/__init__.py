"""CUDA graphs without a GPU: vLLM's own wrappers and dispatch over a stand-in for what CUDA does.

vLLM captures a model's pieces between attention layers, or a whole step, and replays them. What it
asks of CUDA for that is ``torch.cuda.CUDAGraph``, ``torch.cuda.graph`` and a pool of memory: these
are made here, with the contract of the real ones, and all of vLLM around them is its own code.

- A capture runs once and records every operation with the memory that it reads and writes.
- A replay runs these operations over that very memory: nothing that the host does or knows by then
  reaches them, and inputs must lie where they lay at the capture.
- Memory of a capture comes from one pool. A block that nobody refers to is given out again, the
  best fit first, also to the graphs of another model; what was free when a graph was captured holds
  NaN as soon as that graph runs.
- Whatever lets the host wait for the device is refused in a capture, and in the author logic of a
  step.

Operations are recorded where PyTorch dispatches them: so the compiled pieces run with the backend
"eager", which splits, wraps and dispatches them as "inductor" does, but generates no code.
Attention is one operation that reads the metadata of the step which replays it, as a GPU's kernels
read them from buffers that each step fills. In a round of the junior's drafting, which is one graph
of several passes, it reads what was made anew, within the replay, where the round asks for it; the
interpreter's runs of Triton's kernels are recorded as well (``rounds.py``).
"""

from support.graphs.front import CAPTURE_SIZES, with_graphs

__all__ = ["CAPTURE_SIZES", "with_graphs"]
