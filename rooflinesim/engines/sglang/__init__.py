"""Texts of SGLang, as version 0.5.23 reads and writes them."""
