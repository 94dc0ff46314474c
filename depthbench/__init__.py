"""Benchmark of residual designs in decoder-only language models."""

__version__ = "0.1.0"
