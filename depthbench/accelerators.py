"""Accelerators by name, as their data sheets describe them, for plans of machines not at hand."""

from dataclasses import dataclass

from depthbench.config import Precision
from depthbench.errors import InputError

# Share of the peak that training at these sizes reaches, counted in the ledger's FLOPs: assumed,
# the same for every design. Designs that read much and multiply little reach less.
UTILISATION = 0.4


@dataclass(frozen=True)
class Accelerator:
    """Peak FLOP/s of dense bf16 products and of fp32 ones without TF32, and bytes of memory."""

    name: str
    title: str
    bf16_flops: float
    fp32_flops: float
    memory_bytes: int

    def peak(self, precision: Precision) -> float:
        """FLOP/s at most with what a cell of that precision multiplies."""
        return self.fp32_flops if precision == "fp32" else self.bf16_flops


# Products as published without sparsity: NVIDIA's sheets give twice as much, with it. Memory in
# decimal gigabytes: the few percent above, up to 2³⁰, go to ECC, driver and fragmentation.
ACCELERATORS = {
    each.name: each
    for each in (
        # NVIDIA H100 data sheet: SXM 1,979 with sparsity, fp32 67; PCIe 1,513 and 51.
        Accelerator("h100", "NVIDIA H100 SXM 80 GB", 989.4e12, 66.9e12, 80 * 10**9),
        Accelerator("h100-pcie", "NVIDIA H100 PCIe 80 GB", 756e12, 51.2e12, 80 * 10**9),
        # NVIDIA H200 data sheet: the H100's processor with more memory.
        Accelerator("h200", "NVIDIA H200 SXM 141 GB", 989.4e12, 66.9e12, 141 * 10**9),
        # NVIDIA HGX B200 data sheet, an eighth of it: 36,000 with sparsity, fp32 600, 1.44 TB.
        Accelerator("b200", "NVIDIA B200 SXM 180 GB", 2250e12, 75e12, 180 * 10**9),
        # NVIDIA A100 data sheet: 312 without sparsity, fp32 19.5.
        Accelerator("a100", "NVIDIA A100 SXM 80 GB", 312e12, 19.5e12, 80 * 10**9),
        Accelerator("a100-40gb", "NVIDIA A100 SXM 40 GB", 312e12, 19.5e12, 40 * 10**9),
        # NVIDIA L40S data sheet: 733 with sparsity, fp32 91.6.
        Accelerator("l40s", "NVIDIA L40S 48 GB", 362e12, 91.6e12, 48 * 10**9),
        # AMD Instinct MI300X data sheet: 1,307.4 without sparsity, fp32 vector 163.4.
        Accelerator("mi300x", "AMD Instinct MI300X 192 GB", 1307.4e12, 163.4e12, 192 * 10**9),
    )
}


def accelerator(name: str) -> Accelerator:
    """The accelerator of that name, in capitals or not. Raises `InputError` with the nearest."""
    found = ACCELERATORS.get(name.lower())
    if found is None:
        from residuals.errors import unknown

        raise InputError(unknown("accelerator", name, ACCELERATORS))
    return found
