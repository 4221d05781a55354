"""Texts of vLLM, as version 0.33 reads and writes them."""
