"""Pages with looped suites: what they say, hold and leave to others."""

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from depthbench import report
from depthbench.config import CellConfig
from depthbench.report.looped_tables import KAPPA_COLUMNS, STACK_COLUMNS
from tests.report.kit import probe_document, square, write_measures
from tests.report.looped_kit import (
    PAIRS,
    WHOLE,
    alignment_document,
    known_loss,
    suite,
    write_looped,
)
from tests.report.reader import Page, read
from tests.report.test_browser import CATCH_ERRORS, CHROMIUM, dump, measured

FIGURES = ("loss_vs_executed_depth", "loss_vs_compute", "worth_of_loops")
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the suite of cores, two of whose cells were probed."""
    root = tmp_path_factory.mktemp("cores")
    for cell, folder in write_looped(root / "runs", suite()):
        if cell.loop and cell.shape.d_model == 40 and cell.loop.forward == cell.loop.backward > 1:
            kappa = [None, *(1.0 + cell.loop.forward / 8 * k for k in range(4)), None]
            blocks = cell.loop.executed_blocks(cell.shape.layers)
            maps = probe_document("angular", {"distance": square(blocks + 1)})
            write_measures(folder, [alignment_document(kappa), maps])
    return report.build([root / "runs"], root / "out")


@pytest.fixture(scope="module")
def page(cores: Path) -> Page:
    return read(cores)


def of_stacks(page: Page, shape: str, loop: str, tokens: str) -> dict[str, str]:
    columns = [column.title for column in STACK_COLUMNS]
    [line] = [
        line
        for line in page.tables["stacks"][1:]
        if (line[1], line[2], line[6]) == (shape, loop, tokens)
    ]
    return dict(zip(columns, line, strict=True))


def test_it_is_one_looped_part_and_no_ordinary_section(page: Page, cores: Path) -> None:
    html = cores.read_text(encoding="utf-8")
    assert html.count('<section class="group"') == 1
    assert "Looped stacks" in page.words
    assert "Change with depth" not in page.words
    assert "lines" not in page.tables
    names = {path.name for path in cores.parent.iterdir()}
    assert names == {
        "index.html",
        "rows.csv",
        "rows.parquet",
        "leaderboard.json",
        "looped_probes.png",
        *(f"{name}.{form}" for name in FIGURES for form in ("svg", "png")),
    }
    outside = {address for address in page.addresses if not address.startswith(("#", "data:"))}
    assert outside == names - {"index.html"}
    assert len(page.tables["stacks"]) == 1 + 45 + 8


def test_a_row_has_its_numbers_and_its_differences(page: Page, tmp_path: Path) -> None:
    cells = [cell for cell, _ in write_looped(tmp_path, suite())]
    [cell] = [c for c in cells if _is(c, 56, (8, 8)) and c.tokens == 999_936]
    [plain] = [c for c in cells if c.loop is None and c.shape.layers == 6]
    [untied] = [c for c in cells if _is(c, 56, (8, 8), tied=False)]
    deep = max((c for c in cells if c.shape.layers == 34), key=lambda c: c.tokens)
    found = of_stacks(page, "L6 / d56", "1 + core ×8 (B 8) + 1", "1.00\N{NO-BREAK SPACE}M")
    loss = known_loss(cell)
    assert found["Executed"] == "34"
    assert found["Loss"] == f"{loss:.4f}"
    for title, control in (("no loop", plain), ("equal FLOPs", deep), ("untied", untied)):
        gap = f"{loss - known_loss(control):+.4f}".replace("-", MINUS)
        assert found[f"{MINUS} {title}"] == gap
    other = of_stacks(page, "L6 / d40", "1 + core ×8 (B 8) + 1", "1.00\N{NO-BREAK SPACE}M")
    for title in ("no loop", "equal FLOPs", "untied"):
        assert other[f"{MINUS} {title}"].startswith("—")


def _is(cell: CellConfig, width: int, pair: tuple[int, int], tied: bool = True) -> bool:
    loop: Any = cell.loop
    if loop is None or cell.shape.d_model != width:
        return False
    return (loop.forward, loop.backward) == pair and loop.tied is tied


def test_every_blank_and_every_column_is_explained(page: Page) -> None:
    cells = [cell for table in page.tables.values() for line in table[1:] for cell in line]
    assert all(cells)
    for blank in {cell for cell in cells if "—" in cell}:
        assert re.search(rf"— {blank.removeprefix('—none, note')} \w", page.words)
    for column in (*STACK_COLUMNS[1:], *KAPPA_COLUMNS[1:]):
        assert column.meaning in page.titles
        assert column.meaning in page.words


def test_alignment_is_summed_up_by_loop(page: Page) -> None:
    titles = [column.title for column in KAPPA_COLUMNS]
    rows = {line[1]: dict(zip(titles, line, strict=True)) for line in page.tables["kappa"][1:]}
    two, eight = rows["1 + core ×2 (B 2) + 1"], rows["1 + core ×8 (B 8) + 1"]
    # Three budgets alike; of four blocks 1, 1.25, 1.5, 1.75, and 1, 2, 3, 4.
    assert (two["Cells"], two["Visits"], two["κ"]) == ("3", "2", "1.375 ± 0.000")
    assert (two["Least"], two["Greatest"], two["κ / visits"]) == ("1", "1.75", "0.69")
    assert (eight["κ"], eight["Greatest"]) == ("2.500 ± 0.000", "4")
    assert rows["1 + core ×8 (B 1) + 1"]["κ"].startswith("—")


def test_the_map_shown_is_of_the_deepest_loop(page: Page, cores: Path) -> None:
    notes = re.findall(r"<small>(.*?)</small>", cores.read_text(encoding="utf-8"))
    assert notes == ["L6 / d40; 1 + core ×8 (B 8) + 1, 2.00\N{NO-BREAK SPACE}M tokens"]
    maps = [image for image in page.images if image.get("class") != "scale"]
    assert len(maps) == 1 + 6  # one for the design and one in each sheet
    assert len(page.sheets) == 53


def test_the_sentences_are_what_the_law_says(page: Page, tmp_path: Path) -> None:
    cells = [cell for cell, _ in write_looped(tmp_path, suite())]
    changes = []
    for width in (40, 56, 80):
        one, eight = (
            next(known_loss(c) for c in cells if _is(c, width, pair) and c.tokens == 999_936)
            for pair in ((1, 1), (8, 8))
        )
        changes.append(f"{MINUS}{one - eight:.4f} (d{width})")
    said = f"changed the loss of Pre-LN by {', '.join(changes)} nats (one seed each: no interval)."
    assert f"executing 34 blocks in place of 6, with the same parameters, {said}" in page.words
    [plain] = [known_loss(c) for c in cells if c.loop is None and c.shape.layers == 6]
    at_56 = [c for c in cells if c.shape.d_model == 56 and c.tokens == 999_936]
    losses = [known_loss(c) for c in at_56 if any(_is(c, 56, pair) for pair in PAIRS)]
    lower = sum(loss < plain for loss in losses)
    control = "a stack of the same parameters without a loop, on as many tokens"
    assert f"Beside {control}: {lower} of 5 loops end at a lower loss" in page.words
    assert "8 starts and 60 resamples only" in page.words
    assert "p and q come out at ±10 to 20 % at best" in page.words
    assert "One seed: the noise between runs was not measured" in page.words


def test_beside_ordinary_rows_both_are_shown(matrix: Callable[..., Path], tmp_path: Path) -> None:
    root = matrix(designs=("pre-ln", "hc"))
    write_looped(tmp_path / "loops", suite(**WHOLE))
    out = report.build([root, tmp_path / "loops"], tmp_path / "out")
    page = read(out)
    html = out.read_text(encoding="utf-8")
    assert html.count('<section class="group"') == 2
    assert html.index("Change with depth") < html.index("Looped stacks")
    assert len(page.tables["lines"]) == 1 + 6
    assert len(page.tables["stacks"]) == 1 + 6
    assert "not all comparable" not in page.words
    assert (out.parent / "loss_vs_aspect.svg").is_file()
    assert (out.parent / "loss_vs_executed_depth.svg").is_file()
    assert "No fit for Pre-LN and DeepLoop: 3 runs cannot determine" in page.words


def test_a_page_without_loops_has_nothing_of_them(
    matrix: Callable[..., Path], tmp_path: Path
) -> None:
    out = report.build([matrix(designs=("pre-ln", "hc"))], tmp_path / "out")
    html = out.read_text(encoding="utf-8")
    assert "<h1>Loss against aspect ratio</h1>" in html
    for trace in ("looped", "Looped", "table.stacks"):
        assert trace not in html


def test_rows_of_two_precisions_are_two_looped_groups(tmp_path: Path) -> None:
    for precision in ("fp32", "bf16"):
        write_looped(tmp_path / precision, suite(**WHOLE | {"precision": precision}))
    out = report.build([tmp_path / "fp32", tmp_path / "bf16"], tmp_path / "out")
    words = read(out).words
    assert "2 groups that must not be ranked together. They differ in precision." in words
    assert "Looped stacks, group 1 of 2" in words
    assert {"precision fp32", "precision bf16"} <= set(
        re.findall(r"precision (?:fp32|bf16)", words)
    )
    assert (out.parent / "loss_vs_executed_depth-2.svg").is_file()


def test_a_looped_suite_before_any_result(tmp_path: Path) -> None:
    write_looped(tmp_path / "runs", suite(**WHOLE), endings=lambda cell: {"status": "failed"})
    page = read(report.build([tmp_path / "runs"], tmp_path / "out"))
    assert "No run has finished yet: there is nothing to read." in page.words
    assert "No run of a loop B = T has finished yet." in page.words
    assert "No fit for Pre-LN and DeepLoop: no run with a loop has finished." in page.words
    assert [line[-1] for line in page.tables["stacks"][1:]] == ["failed at step 976"] * 6


SORT = """<script>
const table = document.querySelector("table.stacks");
const column = [...table.tHead.rows[0].cells].findIndex((th) => th.textContent.trim() === "TITLE");
const button = table.tHead.rows[0].cells[column].querySelector("button");
const order = () => [...table.tBodies[0].rows].map((row) => row.cells[column].textContent.trim());
const found = [];
for (let press = 0; press < 2; press += 1) { button.click(); found.push(order()); }
found.push([button.parentElement.getAttribute("aria-sort"), String(faults.length)]);
document.body.innerHTML = "";
const pre = document.createElement("pre");
pre.textContent = JSON.stringify(found);
document.body.append(pre);
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install it to run these")
@pytest.mark.parametrize("title", ["FLOPs", f"{MINUS} no loop"])
def test_a_press_on_a_head_sorts_by_number_with_blanks_last(
    cores: Path, tmp_path: Path, title: str
) -> None:
    html = re.sub(r"<meta http-equiv=[^>]*>", CATCH_ERRORS, cores.read_text(encoding="utf-8"))
    copy = tmp_path / "copy.html"
    copy.write_text(html.replace("</body>", SORT.replace("TITLE", title) + "</body>"))
    dom, _ = dump(copy, tmp_path / "profile")
    pre = re.search(r"<pre>(.*?)</pre>", dom, re.DOTALL)
    assert pre is not None
    rising, falling, (state, faults) = json.loads(unescape(pre[1]))
    assert (state, faults) == ("descending", "0")
    up, down = [_numbers(texts) for texts in (rising, falling)]
    assert up == sorted(up)
    assert down == up[::-1]
    assert len(up) > 3
    blanks = [text.startswith("—") for text in rising]
    assert blanks == sorted(blanks)
    assert [text.startswith("—") for text in falling] == blanks


def _numbers(texts: list[str]) -> list[float]:
    units = {"G": 1e9, "T": 1e12, "": 1.0}
    found = []
    for text in texts:
        if not text.startswith("—"):
            number, _, unit = text.replace(MINUS, "-").partition("\N{NO-BREAK SPACE}")
            found.append(float(number) * units[unit])
    return found


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install it to run these")
def test_it_fits_every_width_and_asks_for_nothing(cores: Path, tmp_path: Path) -> None:
    copy = tmp_path / "index.html"
    copy.write_text(cores.read_text(encoding="utf-8"), encoding="utf-8")
    for width, found in measured(copy).items():
        assert found["needed"] <= width
        assert found["bodyNeeded"] <= width
        assert found["faults"] == []
        assert found["requests"] == []
    _, log = dump(cores, tmp_path / "other-profile")
    assert "CONSOLE" not in log
