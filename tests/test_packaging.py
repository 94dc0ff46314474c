"""The wheel: built from what is here, installed elsewhere, working from any directory."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")


def words(section: str, key: str) -> list[str]:
    return SETUP[section][key].split()


def test_every_package_is_listed() -> None:
    folders = {
        path.parent.relative_to(ROOT)
        for name in ("depthbench", "residuals")
        for path in (ROOT / name).rglob("*.py")
    }
    packages = sorted(".".join(folder.parts) for folder in folders)
    assert sorted(words("options", "packages")) == packages


def test_every_dependency_is_pinned_for_reference_results() -> None:
    pins = dict(
        line.lower().split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
    wanted = words("options", "install_requires") + words("options.extras_require", "dev")
    names = {re.split(r"[<>=]", requirement)[0].lower() for requirement in wanted}
    assert names - pins.keys() == set()
    assert not any("+" in version for version in pins.values())


def test_pyproject_says_only_how_to_build() -> None:
    assert len((ROOT / "pyproject.toml").read_text().splitlines()) == 3


def test_every_citation_and_licence_agrees() -> None:
    assert SETUP["metadata"]["license"] == "Apache-2.0"
    assert "license: Apache-2.0" in (ROOT / "CITATION.cff").read_text()
    assert "The depthbench developers" in (ROOT / "LICENSE").read_text()
    from depthbench import __version__

    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Python of a new environment that has the wheel, and borrows what the wheel depends on."""
    place = tmp_path_factory.mktemp("wheel")
    source, environment = place / "source", place / "environment"
    shutil.copytree(
        ROOT,
        source,
        ignore=shutil.ignore_patterns(
            *(".*", "tests", "reports", "runs", "build", "dist", "__pycache__", "*.egg-info")
        ),
    )
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place, source)
    (wheel,) = place.glob("*.whl")
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", wheel)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    shutil.rmtree(source)
    return python


def run(*command: object, cwd: Path | None = None) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=cwd, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_installed_command_works_from_any_directory(installed, tmp_path) -> None:
    command = installed.with_name("depthbench")
    found = json.loads(run(command, "list", "--json", cwd=tmp_path))
    for kind in ("designs", "ladders", "suites", "corpora"):
        assert found[kind]
    planned = run(command, "plan", "quick", "--set", "designs=[pre-ln]", "--json", cwd=tmp_path)
    assert len(json.loads(planned)["cells"]) == 3
    assert list(tmp_path.iterdir()) == []


def test_the_installed_package_carries_its_data(installed, tmp_path) -> None:
    script = (
        "import depthbench, residuals, depthbench.report as report\n"
        "from depthbench.assets import asset\n"
        "from importlib.resources import files\n"
        "print(depthbench.__file__); print(residuals.__file__)\n"
        "print(asset('shapes.yaml')); print(asset('evals/validation.yaml'))\n"
        "for package in ('depthbench.data', 'depthbench.report', 'depthbench', 'residuals'):\n"
        "    for entry in files(package).iterdir():\n"
        "        if entry.is_file() and not entry.name.endswith('.py'):\n"
        "            print(f'{package}/{entry.name}')\n"
    )
    lines = run(installed, "-c", script, cwd=tmp_path).splitlines()
    prefix = str(installed.parents[1])
    assert all(line.startswith(prefix) for line in lines[:4]), lines[:4]
    here = {
        f"{package}/{path.name}"
        for package in ("depthbench.data", "depthbench.report", "depthbench", "residuals")
        for path in (ROOT / package.replace(".", "/")).iterdir()
        if path.is_file() and path.suffix != ".py"
    }
    assert set(lines[4:]) == here
