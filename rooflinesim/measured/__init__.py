"""Measured serving rows that ship with other packages, read where they are installed; nothing is copied."""
