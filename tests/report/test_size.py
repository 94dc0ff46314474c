"""A large report: how big its page is, and that its maps are all there."""

from pathlib import Path

from depthbench import report
from tests.report.large import write_large
from tests.report.reader import read


def test_ten_designs_five_shapes_and_three_seeds_stay_below_six_megabytes(tmp_path: Path) -> None:
    write_large(tmp_path / "runs")
    page = report.build([tmp_path / "runs"], tmp_path / "out")
    assert page.stat().st_size < 6e6
    found = read(page)
    assert len(found.sheets) == 150
    maps = [image for image in found.images if image.get("class") != "scale"]
    assert len(maps) == 5 * (10 + 150)
