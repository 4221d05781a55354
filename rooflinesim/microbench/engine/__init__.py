"""A speculative-decoding engine: target and drafter, batched, caches in step, lossless verification."""
