"""Cells and their parent are killed at random, and every loss stays what it was.

`python -m depthbench.endurance` runs a small matrix undisturbed. Then it runs the same matrix in
rounds, sends SIGKILL at moments that it reads off the disk, starts the parent again whenever it is
gone, and compares. Cells save after every step, so that there is much to interrupt.
"""
