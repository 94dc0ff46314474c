"""Where tests of kernels run: on the CPU, and on a GPU where there is one."""

import torch

DEVICES = ("cpu", *(("cuda",) if torch.cuda.is_available() else ()))
