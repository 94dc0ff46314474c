"""The report: a page, its figures, and its rows as files."""

from collections.abc import Sequence
from pathlib import Path

from depthbench.errors import InputError
from depthbench.folder import replacing
from depthbench.report import paper
from depthbench.report.board_files import without_formulas, write_boards
from depthbench.report.cells import read_cells
from depthbench.report.looped import looped_of
from depthbench.report.loops import loop_looks
from depthbench.report.outputs import Contents, all_pictures, looped_names, names_of, rates_names
from depthbench.report.page import Against, render
from depthbench.report.parts import parts_of
from depthbench.report.rates import rates_of
from depthbench.report.sections import LOOPED, looped_suites, split
from depthbench.report.series import looks
from depthbench.store import cell_folders, plain, rows


def build(roots: Sequence[Path], out: Path, against: Against | None = None) -> Path:
    """Writes the report on all cells under `roots` into `out` and returns the path of its page.

    `index.html` needs no other file. Beside it lie `rows.csv` and `.parquet`, the leaderboard as
    `leaderboard.csv`, `.parquet`, `.json` (with all rows) and `.md`, and the figures:
    `loss_vs_aspect`, `domains` and `efficiency` as `.svg` and `.png`, and the heat maps as
    `probes.png`; rows that are not comparable get figures of their own, `loss_vs_aspect-2` and on.
    Suites with loops have `loss_vs_executed_depth`, `loss_vs_compute`, `worth_of_loops` and
    `looped_probes.png` instead. Runs that looked for a learning rate are in `tuning` alone.
    `against` lays the published numbers beside ours. Raises `InputError` when a root is no folder
    or holds no cell, or when one experiment has two outcomes.

    In the CSV files a text that a spreadsheet would compute has an apostrophe before it.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a folder for the report")
    if out.is_symlink() and out.parent.resolve() in {root.resolve() for root in roots}:
        raise InputError(f"{out} is a link: name the folder it leads to with --out if it is yours")
    folders = [folder for root in roots for folder in cell_folders(root)]
    if not folders:
        raise InputError(
            f"no cell under {', '.join(map(str, roots)) or 'no folder'}: run a suite first"
        )
    frame = rows(folders)
    records = plain(frame)
    known = [record for record in records if record["design"] is not None]
    appearance = looks([*known, *(paper.all_records() if against else [])])
    suites = looped_suites(known)
    scored = [record for record in known if record["role"] != "tuning"]
    in_loops = [record for record in scored if record["suite"] in suites]
    appearance |= loop_looks(in_loops)
    cells = read_cells(scored)
    unlooped = [record for record in scored if record["suite"] not in suites]
    sections = [parts_of(section, appearance, cells) for section in split(unlooped)]
    looped = [looped_of(section, appearance, cells) for section in split(in_loops, LOOPED)]
    rates = rates_of([r for r in known if r["role"] == "tuning"], appearance)
    contents = Contents(
        sections=[*zip(sections, names_of(sections), strict=True)],
        looped=[*zip(looped, looped_names(looped), strict=True)],
        rates=[*zip(rates, rates_names(rates), strict=True)],
    )
    out.mkdir(parents=True, exist_ok=True)
    with replacing(out / "rows.csv") as path:
        without_formulas(frame).to_csv(path, index=False)
    with replacing(out / "rows.parquet") as path:
        frame.to_parquet(path, index=False)
    write_boards([(parts.section, parts.entries) for parts in sections], records, out, appearance)
    for name, content in all_pictures(contents, appearance):
        with replacing(out / name) as path:
            path.write_bytes(content)
    page = out / "index.html"
    html = render(records, contents, appearance, cells, against)
    with replacing(page) as path:
        path.write_text(html, encoding="utf-8")
    return page
