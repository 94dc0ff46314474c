"""Each planted fault is found by the check of its name, and no other check blames it."""

from pathlib import Path

import pytest

import residuals
from depthbench.conformance import CHECKS, Report, Subject, examine

PLANTED = Path(__file__).parent / "planted"
EXPECTED = {
    # A leak from the future is mixing of tokens as well.
    "future_leak": {"causality", "token-locality"},
    "cross_token": {"token-locality"},
    "cross_sequence": {"token-locality"},
    "unused_parameter": {"gradients"},
    "no_role": {"roles"},
    "kept_state": {"module-state"},
    # What a first chunk leaves behind is not what the whole sequence would.
    "first_batch": {"module-state", "incremental-decoding"},
    "growing_list": {"growth"},
    "growing_global": {"growth"},
    "global_init": {"initialisation"},
    # A constant that every instance draws anew: no two of its models agree.
    "hidden_weight": {"initialisation", "save-load", "resume", "whole-loop", "core-loop"},
    "wrong_flops": {"flop-formula"},
    "wrong_params": {"parameter-formula"},
    "in_place": {"in-place"},
    "bf16_coefficients": {"bf16"},
    "infinite_gradient": {"gradients"},
    "read_raises": {"incremental-decoding"},
    "random_forward": {"determinism"},
    "graph_break": {"compile"},
    # Both run on from a state that `skip` or an exchange left.
    "skip_runs_on": {"skip", "exchange"},
    "wrong_paths": {"path-weights"},
    "round_only": {"whole-loop"},
    "changing_depth": {"depth-state"},
    "exchange_scales": {"exchange"},
    "depth_of_part": {"core-loop"},
    "grad_mode": {"truncation"},
    "leaves": {"forward"},
    "default_dtype": {"forward"},
    "nan_flops": {"flop-formula"},
}
WHERE = {
    "future_leak": "future_leak.py:20 write",
    "unused_parameter": "unused_parameter.py:22",
    "kept_state": "kept_state.py:21",
    "growing_global": "growing_global.py:8",
    "global_init": "global_init.py:20 __init__",
    "wrong_flops": "wrong_flops.py:32 routing_flops",
    "read_raises": "read_raises.py:21 read",
    "graph_break": "graph_break.py:20 write",
}
WHY = {
    "unused_parameter": "no gradient reaches design.idle",
    "no_role": "parameter 'design.scale' has no role",
    "kept_state": "a forward changes design.last_size",
    "growing_list": "design.seen grows",
    "wrong_flops": "matmul = 10,240 a token and 20,480 are counted",
    "wrong_params": "says 0 and 2 are built",
    "bf16_coefficients": "sigmoid of bf16 values",
    "leaves": "SystemExit: 0",
    "default_dtype": "it changed torch's default dtype",
    "nan_flops": "FLOPs are whole numbers",
    "in_place": "write changes what it is given at visit 0",
}
INDEPENDENT = {
    "kept_state",
    "growing_list",
    "cross_token",
    "wrong_flops",
    "global_init",
    "wrong_params",
}
BASIC = {"forward", "roles", "gradients", "initialisation", "determinism", "bf16", "resume"}


def report_on(fault: str) -> Report:
    """All checks but the slow ones: only the fault that is theirs is compiled."""
    (design,) = residuals.load_plugin(PLANTED / f"{fault}.py")
    left_out = {"speed"} if fault == "graph_break" else {"speed", "compile"}
    return examine(Subject(design), CHECKS.keys() - left_out)


def test_every_planted_file_is_expected() -> None:
    assert {path.stem for path in PLANTED.glob("*.py")} == EXPECTED.keys()


@pytest.mark.parametrize("fault", EXPECTED)
def test_a_fault_is_found_by_its_check_alone(fault: str) -> None:
    report = report_on(fault)
    assert set(report.failed) == EXPECTED[fault]
    for finding in report.checks:
        if finding.passed is None and finding.name != "memory":
            assert finding.why.startswith(("not asked, since", "the design gives no path"))
    first = next(finding for finding in report.checks if finding.passed is False)
    assert first.where.startswith(WHERE.get(fault, ""))
    assert WHY.get(fault, "") in first.why
    assert "\n" not in first.why
    if fault in INDEPENDENT:
        passed = {finding.name for finding in report.checks if finding.passed}
        assert passed >= BASIC - EXPECTED[fault]
