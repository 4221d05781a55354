"""Fits: measured kernels in, efficiencies with standard errors and held-out scores out."""
