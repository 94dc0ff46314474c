"""Designs of installed packages: real wheels, built and installed without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HALF = '''
"""A design of another package."""

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Half(PreLN):
    """`x ← x + F(N(x))/2`."""

    name = "half"
    title = "Half"
    version = 3
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD / 2,)
'''
TWICE = HALF.replace('"half"', '"early"') + HALF.replace('"half"', '"hc"').replace("= 3", "= 1")
PACKAGES = {
    "half-design": ("half_design", HALF),
    "broken-design": ("broken_design", "import no_such_module_anywhere\n"),
    "empty-design": ("empty_design", "x = 1\n"),
    "clashing-design": ("clashing_design", TWICE),
}


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one sound package and three that are not."""
    place = tmp_path_factory.mktemp("packages")
    sources = []
    for name, (module, text) in PACKAGES.items():
        source = place / name
        source.mkdir()
        (source / f"{module}.py").write_text(text)
        (source / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
            f'[project]\nname = "{name}"\nversion = "0.1"\n'
            f'[project.entry-points."depthbench.residuals"]\ndesigns = "{module}"\n'
            f'[tool.setuptools]\npy-modules = ["{module}"]\n'
        )
        sources.append(source)
    wheels, site = place / "wheels", place / "site"
    pip("wheel", "--no-index", "--no-build-isolation", "--no-deps", "-w", wheels, *sources)
    pip("install", "--no-index", "--no-deps", "--target", site, *sorted(wheels.glob("*.whl")))
    return site


def shell(site: Path, work: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{site}",
        "DEPTHBENCH_CACHE": str(work / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=work
    )


def test_a_design_of_a_wheel_is_listed_and_planned_beside_broken_ones(installed, tmp_path) -> None:
    verb = ("-m", "depthbench")
    listed = shell(installed, tmp_path, *verb, "list", "designs", "--json")
    assert listed.returncode == 0, listed.stderr
    designs = {each["name"]: each["version"] for each in json.loads(listed.stdout)}
    assert designs["half"] == 3
    assert designs["hc"] == 1
    assert "early" not in designs  # half of a package is not a plugin
    for package, reason in (
        ("broken-design", "no_such_module_anywhere"),
        ("empty-design", "registers no design"),
        ("clashing-design", "hc@1 is registered twice"),
    ):
        (said,) = (line for line in listed.stderr.splitlines() if f"package '{package}'" in line)
        assert reason in said
    assert "half-design" not in listed.stderr
    planned = shell(
        installed, tmp_path, *verb, "plan", "quick", "--set", "designs=[half]", "--json"
    )
    assert planned.returncode == 0, planned.stderr
    assert {cell["design"] for cell in json.loads(planned.stdout)["cells"]} == {"half"}


CHECK = """
import json, sys, warnings
warnings.simplefilter("ignore")
from depthbench.conformance import Subject, badge, examine, keep
import residuals
report = examine(Subject.named("half"), {"forward", "roles", "causality", "flop-formula"})
keep(report.as_dict())
found = badge(residuals.get("half"))
print(json.dumps([report.badge, found["version"], residuals.registry.broken_packages()]))
try:
    residuals.get("early")
except residuals.DesignError as error:
    print(error)
"""


def test_a_design_of_a_wheel_is_checked(installed, tmp_path) -> None:
    done = shell(installed, tmp_path, "-c", CHECK)
    assert done.returncode == 0, done.stderr
    first, *said = done.stdout.splitlines()
    outcome, version, broken = json.loads(first)
    assert (outcome, version) == ("conforms", 3)
    assert set(broken) == {"broken-design", "empty-design", "clashing-design"}
    # Whoever looks for a design that is not there is told what could not be loaded.
    assert said[0].startswith("unknown design 'early'")
    assert any("'broken-design'" in line for line in said[1:])
