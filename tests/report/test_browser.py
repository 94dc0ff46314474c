"""The page in a real browser: its width, its console, its requests, and its switches."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from depthbench import report
from tests.report import cells as synthetic
from tests.report.kit import DOMAINS, domains_document, noisy_probes, write_measures

BINARIES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((path for path in map(shutil.which, BINARIES) if path), None)
WIDTHS = (360, 390, 1440)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install it to run these")

CATCH_ERRORS = """<script>
window.faults = [];
window.addEventListener("error", (event) => faults.push(String(event.message)));
console.error = console.warn = (...parts) => faults.push(parts.join(" "));
</script>"""

MEASURE = """<script>
const press = (button) => button.click();
const group = document.querySelector("section.group");
const hidden = (series) => [...group.querySelectorAll(`figure [data-series="${series}"]`)]
  .every((part) => getComputedStyle(part).display === "none");
const litRows = () => [...document.querySelectorAll("tr.lit")];
const lit = () => [...new Set(litRows().map((row) => row.dataset.series))];
const root = document.documentElement;
const boxes = [...document.querySelectorAll(".scroll")];
const report = {
  width: innerWidth,
  needed: root.scrollWidth,
  bodyNeeded: document.body.scrollWidth,
  tables: boxes.map((box) => [box.clientWidth, box.scrollWidth]),
  tallEnough: [...document.querySelectorAll(".figures figure svg")]
    .filter((svg) => svg.getBoundingClientRect().height > 200).length,
  title: document.title,
  images: document.querySelectorAll("img").length,
  requests: performance.getEntriesByType("resource").map((entry) => entry.name),
};
const buttons = [...document.querySelectorAll(".legend button[data-series]")];
if (buttons.length) {
  const [first, second] = buttons;
  const all = document.querySelector(".legend .all");
  report.buttons = buttons.map((button) => button.textContent.trim());
  report.usable = buttons.every((button) => !button.disabled);
  report.start = [hidden(first.dataset.series), all.hidden];
  press(first);
  report.pressed = [hidden(first.dataset.series), hidden(second.dataset.series),
    first.getAttribute("aria-pressed"), all.hidden];
  press(all);
  report.restored = [hidden(first.dataset.series), first.getAttribute("aria-pressed"), all.hidden];
  second.focus();
  report.focused = [lit(), second.dataset.series];
  second.blur();
  report.blurred = lit();
}
report.faults = faults;
const link = document.querySelector('table.lines a[href^="#cell-"]');
if (link) {
  const sheet = document.getElementById(link.hash.slice(1)).closest("details");
  report.openBefore = sheet.open;
  link.click();
  setTimeout(() => {
    const maps = [...sheet.querySelectorAll("img")];
    report.openAfter = sheet.open;
    report.mapSizes = maps.map((map) => [map.naturalWidth, map.naturalHeight]);
    report.neededAfter = root.scrollWidth;
    parent.postMessage(report, "*");
  }, 200);
} else {
  parent.postMessage(report, "*");
}
</script>"""

USE = """<script>
{
const table = document.querySelector("table.board");
const heads = [...table.tHead.rows[0].cells];
const column = (title) => heads.findIndex((head) => head.textContent.trim() === title);
const names = () => [...table.tBodies[0].rows].filter((row) => !row.hidden)
  .map((row) => row.cells[0].textContent.trim());
const bar = table.parentElement.previousElementSibling;
const [search] = bar.querySelectorAll("input");
const select = (title) => [...bar.querySelectorAll("label")]
  .find((label) => label.textContent.startsWith(title)).querySelector("select");
const key = (target, name) => target.dispatchEvent(
  new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
const report = { width: innerWidth, steps: [], tips: [] };
const step = () => report.steps.push(names());

step();
const button = heads[column("\u2212 Pre-LN")].querySelector("button");
for (const press of [1, 2]) {
  button.click();
  step();
}
report.sorted = heads.map((head) => head.getAttribute("aria-sort")).filter(Boolean);
button.focus();
report.focusable = document.activeElement === button && button.tabIndex === 0;
report.outline = getComputedStyle(button).outlineStyle;
heads[column("Rank")].querySelector("button").click();
step();
search.value = "attn";
search.dispatchEvent(new Event("input"));
step();
report.told = bar.querySelector("output").textContent;
search.value = "";
select("Status").value = "=diverged";
select("Status").dispatchEvent(new Event("change"));
step();
select("Status").value = "";
select("Family").value = "=access";
select("Family").dispatchEvent(new Event("change"));
step();
bar.querySelector("button").click();
step();
report.refocused = document.activeElement === search;

const group = document.querySelector("section.group");
const svg = [...group.querySelectorAll("figure svg.plot")]
  .find((one) => one.getBoundingClientRect().height > 0);
const tip = document.querySelector(".tip");
svg.focus();
report.reached = document.activeElement === svg;
for (const name of ["ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "Escape"]) {
  key(svg, name);
  report.tips.push([...tip.childNodes].filter((node) => node.nodeName !== "BR")
    .map((node) => node.textContent));
}
const mark = svg.querySelector("[data-tip]");
mark.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
report.pointed = tip.textContent;
const box = tip.getBoundingClientRect();
report.inside = box.left >= 0 && box.right <= innerWidth;
mark.dispatchEvent(new PointerEvent("pointerout", { bubbles: true }));
report.left = tip.textContent;
const bands = group.querySelector(".legend .bands");
const opacity = () => getComputedStyle(group.querySelector("figure g:not(.lit) > .band")).opacity;
report.bands = [opacity()];
bands.click();
report.bands.push(opacity(), bands.getAttribute("aria-pressed"));
report.needed = document.documentElement.scrollWidth;
report.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
report.faults = faults;
parent.postMessage(report, "*");
}
</script>"""

FRAMES = """<!doctype html><body><script>
const reports = [];
addEventListener("message", (event) => {{
  reports.push(event.data);
  document.querySelector("pre").textContent = JSON.stringify(reports);
}});
</script><pre></pre>{frames}"""


def dump(page: Path, profile: Path) -> tuple[str, str]:
    """The DOM after loading, and what was logged."""
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
        "--disable-sync",
        "--no-first-run",
        "--enable-logging=stderr",
        f"--user-data-dir={profile}",
        "--virtual-time-budget=5000",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


def measured(page: Path, script: str = MEASURE) -> dict[int, dict[str, Any]]:
    """What a copy of the page with `script` says about itself, by width of its frame."""
    html = page.read_text(encoding="utf-8")
    html, count = re.subn(r"<meta http-equiv=[^>]*>", CATCH_ERRORS, html)
    assert count == 1
    (page.parent / "copy.html").write_text(html.replace("</body>", f"{script}</body>"))
    frames = "".join(
        f'<iframe src="copy.html" style="border: 0; width: {width}px; height: 900px"></iframe>'
        for width in WIDTHS
    )
    harness = page.parent / "harness.html"
    harness.write_text(FRAMES.format(frames=frames))
    dom, _ = dump(harness, page.parent / "profile")
    found = re.search(r"<pre>(.*?)</pre>", dom, re.DOTALL)
    assert found is not None
    return {entry["width"]: entry for entry in json.loads(unescape(found[1]))}


@pytest.fixture
def page(matrix: Callable[..., Path], tmp_path: Path) -> Path:
    endings = synthetic.ENDINGS
    designs = ("pre-ln", "deepnorm", "hc", "mhc")
    root = matrix(designs=designs, seeds=(1, 2), endings=endings)
    matrix(designs=["pre-ln", "hc"], precision="bf16", suite="other")
    cell = synthetic.config("a-design-whose-name-has-no-end" * 3, (4, 128, 352), 1)
    synthetic.write_cell(root, cell, synthetic.result(cell, None, error="x" * 4000))
    return report.build([root], tmp_path / "out")


def test_it_fits_every_width_and_its_switches_work(page: Path) -> None:
    reports = measured(page)
    assert set(reports) == set(WIDTHS)
    for width, found in reports.items():
        assert found["needed"] <= width
        assert found["bodyNeeded"] <= width
        assert found["tallEnough"] == 4
        assert found["faults"] == []
        assert found["requests"] == []
        assert found["usable"]
        assert len(found["buttons"]) == 7
        assert found["start"] == [False, True]
        assert found["pressed"] == [True, False, "false", False]
        assert found["restored"] == [False, "true", True]
        assert found["focused"] == [[found["focused"][1]], found["focused"][1]]
        assert found["blurred"] == []
    phone = reports[390]["tables"]
    assert any(needed > given for given, needed in phone)


def test_the_page_as_it_is_logs_nothing_and_runs_its_script(page: Path, tmp_path: Path) -> None:
    dom, log = dump(page, tmp_path / "profile")
    assert "CONSOLE" not in log
    legend = re.findall(r"<button[^>]*data-series[^>]*>", dom)
    assert legend
    assert not any("disabled" in button for button in legend)


def test_one_click_on_a_line_opens_the_probes_of_its_cell(tmp_path: Path) -> None:
    for design in ("pre-ln", "hc"):
        for shape in ((4, 128, 352), (16, 64, 176)):
            cell = synthetic.config(design, shape, 1)
            folder = synthetic.write_cell(tmp_path / "runs", cell, synthetic.result(cell, 4.0))
            domains = domains_document(dict.fromkeys(DOMAINS, 3.0))
            write_measures(folder, noisy_probes(shape[0]), domains)
    reports = measured(report.build([tmp_path / "runs"], tmp_path / "out", "paper"))
    for width, found in reports.items():
        assert found["needed"] <= width
        assert found["neededAfter"] <= width
        assert (found["openBefore"], found["openAfter"]) == (False, True)
        sides = [side for side, _ in found["mapSizes"]]
        assert sides == [5, 4, 4, 4, 9]  # states, blocks, blocks, blocks, sublayers and embedding
        assert all(across == down for across, down in found["mapSizes"])
        assert found["faults"] == []
        assert found["requests"] == []


def test_markup_in_results_stays_text(tmp_path: Path) -> None:
    attack = "<img src=x onerror=\"document.title='taken'\">"
    error = "</pre></script><script>document.title = 'taken'</script>"
    for shape in ((4, 128, 352), (16, 64, 176)):
        for design in ("pre-ln", attack):
            ladder = "'\"><svg onload=document.title='taken'>"
            cell = synthetic.config(design, shape, 1, ladder=ladder)
            document = synthetic.result(cell, None if shape[0] == 16 else 4.0, error=error)
            synthetic.write_cell(tmp_path / "runs", cell, document)
    reports = measured(report.build([tmp_path / "runs"], tmp_path / "out"))
    for found in reports.values():
        assert found["title"] == "depthbench: quick"
        assert found["images"] == 0
        assert found["faults"] == []
        assert found["requests"] == []
        assert any(attack in button for button in found["buttons"])


def test_the_leaderboard_sorts_filters_and_its_figure_answers(
    matrix: Callable[..., Path], tmp_path: Path
) -> None:
    designs = ("pre-ln", "hc", "full-attnres", "block-attnres", "deepnorm")
    root = matrix(designs=designs, seeds=(1, 2), endings=synthetic.ENDINGS)
    for width, found in measured(report.build([root], tmp_path / "out"), USE).items():
        start, rising, falling, by_rank, searched, lost, family, cleared = found["steps"]
        assert start == ["HC", "Full AttnRes", "Block AttnRes", "Pre-LN", "DeepNorm"]
        # The baseline has no difference to itself, DeepNorm none over all shapes: last both times.
        assert rising == ["HC", "Full AttnRes", "Block AttnRes", "Pre-LN", "DeepNorm"]
        assert falling == ["Block AttnRes", "Full AttnRes", "HC", "Pre-LN", "DeepNorm"]
        assert found["sorted"] == ["descending"]
        assert found["focusable"]
        assert found["outline"] != "none"
        assert by_rank == start
        assert searched == ["Full AttnRes", "Block AttnRes"]
        assert found["told"] == "2 of 5 rows"
        assert lost == ["DeepNorm"]
        assert family == ["Full AttnRes", "Block AttnRes"]
        assert cleared == start
        assert found["refocused"]
        assert found["reached"]
        first, second, back, below, none = found["tips"]
        assert first == back
        assert first[0] == second[0] == "Pre-LN"
        assert (first[1], second[1]) == ("L4 / d128", "L8 / d96")
        assert "sample deviation over seeds" in first[3]
        assert first[4] == "seeds 1 and 2"
        assert below[0] != "Pre-LN"
        assert below[1] == "L4 / d128"
        assert none == []
        assert found["pointed"].startswith("Pre-LN")
        assert found["inside"]
        assert found["left"] == ""
        assert found["bands"] == ["0", "0.1", "true"]
        assert found["needed"] <= width
        assert found["requests"] == []
        assert found["faults"] == []


def test_hostile_text_stays_text_in_every_part(tmp_path: Path) -> None:
    attack = "\"'><script>document.title='taken'</script><img src=x onerror=document.title='taken'>"
    environment = {"host": attack, "device": f"=1+1\u202e\x07{attack}", "cpu": attack}
    for design in ("pre-ln", attack):
        for seed in (1, 2):
            for shape in ((4, 128, 352), (16, 64, 176)):
                cell = synthetic.config(design, shape, seed)
                document = synthetic.result(cell, 4.0 + seed / 100, environment=environment)
                document["conformance"] = attack
                synthetic.write_cell(tmp_path / "runs", cell, document)
        for rate in (0.001, 0.002, 0.004):
            changes = {"role": "tuning", "optimizer": {"learning_rate": rate}}
            cell = synthetic.config(design, (4, 128, 352), 101, **changes)
            synthetic.write_cell(tmp_path / "runs", cell, synthetic.result(cell, 3.0 + rate))
    page = report.build([tmp_path / "runs"], tmp_path / "out")
    for width, found in measured(page).items():
        assert found["title"] == "depthbench: quick"
        assert found["images"] == 0
        assert found["faults"] == []
        assert found["requests"] == []
        assert found["needed"] <= width
        assert any(attack in button for button in found["buttons"])
    text = page.read_text(encoding="utf-8")
    assert "\x07" not in text
    assert "\u202e" not in text
