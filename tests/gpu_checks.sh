#!/usr/bin/env bash
# What can only be seen on a GPU: kernels against fp64, and every design against the CPU.
# On a machine that has one, after `make lint` or `pip install -e '.[dev]'`:  tests/gpu_checks.sh
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
out=${1:-gpu-smoke.json}
export HF_HUB_OFFLINE=1

"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
    echo "torch sees no GPU here" >&2
    exit 2
}
failed=0
"$python" -m depthbench doctor
"$python" -m pytest -q tests/model/test_attention.py tests/model/test_flex.py \
    tests/model/test_determinism.py || failed=1
"$python" -m depthbench smoke --json >"$out" || failed=1
echo "every design on this GPU: $out"
exit "$failed"
