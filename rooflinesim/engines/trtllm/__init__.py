"""Texts of TensorRT-LLM (main branch, late 2026)."""
