"""Frozen descriptions of hardware, models, drafters, engines and fits. Nothing here computes time."""
