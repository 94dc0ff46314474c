"""A fit as JSON, and as a page that opens offline."""

import base64
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from depthbench import __version__
from depthbench.folder import replacing, write_json
from depthbench.pages import environment
from depthbench.scaling.answers import Ask, verdict_records
from depthbench.scaling.fitting import Fit
from depthbench.scaling.named import LAW_FILE
from depthbench.scaling.planner import Choice
from depthbench.scaling.rows import COLUMNS
from depthbench.scaling.statements import judge

SCHEMA = 1
SMALL_MODEL = 2e6  # parameters, below which differences between seeds leave p and q vague
_HERE = Path(__file__).parent


def fit_document(fit: Fit) -> dict[str, Any]:
    """All of a fit as JSON: law, intervals, deviations, g, warnings, and runs with residuals."""
    law, runs = fit.law, fit.runs
    columns = [getattr(runs, name) for name in COLUMNS] + [fit.residuals]
    return {
        "schema": SCHEMA,
        "law": law.model_dump(mode="json"),
        "constants": [
            {
                "name": name,
                "value": value,
                "interval": fit.intervals.get(name),
                "relative_deviation": _finite(fit.deviations[name]),
            }
            for name, value in law.constants.items()
        ],
        "g": [asdict(worth) for worth in fit.worths],
        "noise": fit.noise,
        "starts": fit.num_starts,
        "agreeing_starts": fit.num_agreeing,
        "resamples": fit.num_resamples,
        "warnings": list(fit.warnings),
        "runs": [
            dict(zip((*COLUMNS, "residual"), map(float, row), strict=True))
            for row in zip(*columns, strict=True)
        ],
    }


def write_fit(fit: Fit, out: Path) -> Path:
    """Writes law.json, fit.json, residuals.svg and index.html; returns the page's path."""
    from depthbench.scaling.pictures import residual_plot

    picture = residual_plot(fit)
    document = fit_document(fit)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / LAW_FILE, document["law"])
    write_json(out / "fit.json", document)
    _write(out / "residuals.svg", picture)
    _write(out / "index.html", fit_page(fit, picture).encode())
    return out / "index.html"


def write_plan(ask: Ask, document: dict[str, Any], out: Path) -> Path:
    """Writes plan.json and plan.svg; returns the picture's path."""
    from depthbench.scaling.pictures import plan_picture

    picture = plan_picture(ask, Choice(**document["best"]))
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "plan.json", document)
    _write(out / "plan.svg", picture)
    return out / "plan.svg"


def fit_page(fit: Fit, picture: bytes) -> str:
    """HTML with everything in it."""
    templates = environment(_HERE)
    sizes = fit.runs.N_once + fit.runs.N_rec
    share = fit.law.recurrent_share
    return templates.get_template("fit.html.j2").render(
        version=__version__,
        document=fit_document(fit),
        ranges=fit.law.fitted_range,
        small=bool(np.max(sizes) < SMALL_MODEL),
        statements=verdict_records(judge(fit.law)) if share else [],
        picture=base64.b64encode(picture).decode(),
    )


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as aside:
        aside.write_bytes(content)
