"""Measurements of this machine: primitives, a small real decoder, and a speculative-decoding engine in torch.

The only room that imports torch, and only inside its modules: importing this package needs no torch.
``rooflinesim.microbench.env`` says what the machine is and what is missing.
"""

#: Version of the measuring protocol. Rows with different versions are not comparable.
BENCHMARK_VERSION = "1.0"
