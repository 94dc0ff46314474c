"""Whether a residual design keeps the contract: checks by name, and the badge that says so."""

from depthbench.conformance.badge import badge, keep, source_hash
from depthbench.conformance.checks import Check, Finding, Report
from depthbench.conformance.examine import CHECKS, examine
from depthbench.conformance.subject import Subject

__all__ = [
    "CHECKS",
    "Check",
    "Finding",
    "Report",
    "Subject",
    "badge",
    "examine",
    "keep",
    "source_hash",
]
