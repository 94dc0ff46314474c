"""The report: a page, its figure, and its rows as files."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from depthbench.errors import InputError
from depthbench.folder import replacing
from depthbench.report import figures
from depthbench.report.page import render, section_panels
from depthbench.report.sections import split
from depthbench.report.series import looks
from depthbench.store import Record, cell_folders, rows

FIGURE = "loss_vs_aspect"


def build(roots: Sequence[Path], out: Path) -> Path:
    """Writes the report on all cells under `roots` into `out` and returns the path of its page.

    `index.html` needs no other file. Beside it lie `rows.csv`, `rows.parquet`, and the figure as
    `loss_vs_aspect.svg` and `.png`; rows that are not comparable get figures of their own,
    `loss_vs_aspect-2` and on. Raises `InputError` when a root is no folder or holds no cell, or
    when one experiment has two outcomes.
    """
    folders = [folder for root in roots for folder in cell_folders(root)]
    if not folders:
        raise InputError(
            f"no cell under {', '.join(map(str, roots)) or 'no folder'}: run a suite first"
        )
    frame = rows(folders)
    records = plain_records(frame)
    known = [record for record in records if record["design"] is not None]
    sections = split(known)
    appearance = looks(known)
    names = [FIGURE if i == 0 else f"{FIGURE}-{i + 1}" for i in range(len(sections))]
    out.mkdir(parents=True, exist_ok=True)
    with replacing(out / "rows.csv") as path:
        frame.to_csv(path, index=False)
    with replacing(out / "rows.parquet") as path:
        frame.to_parquet(path, index=False)
    for section, name in zip(sections, names, strict=True):
        shown = section_panels(section, appearance)
        for form in ("svg", "png") if shown else ():
            with replacing(out / f"{name}.{form}") as path:
                path.write_bytes(figures.draw(shown, appearance, figures.WIDE, form))
    page = out / "index.html"
    with replacing(page) as path:
        path.write_text(render(records, sections, appearance, names), encoding="utf-8")
    return page


def plain_records(frame: pd.DataFrame) -> list[Record]:
    """Rows as plain values, None where there is none."""
    plain = frame.astype(object)
    plain = plain.where(plain.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]
