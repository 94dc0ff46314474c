"""Trackers: a process of its own that tells TensorBoard or W&B what the cells' files say.

Training knows nothing of it. Whatever a tracker does, hang or raise, the files are the truth.
"""
