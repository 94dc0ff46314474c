"""Documents whose parts are of another kind cost their own place in a report, and nothing else."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from depthbench import report
from depthbench.report.cells import read_cells
from tests.report import cells as synthetic
from tests.report.kit import domains_document, probe_document, square, write_measures

OTHERS: tuple[Any, ...] = (None, [], {}, "text", -1, [[1, 2], [3]], {"a": {"b": []}})


def mutated(document: Any) -> Iterator[Any]:
    """The document with each of its parts, to a depth of two, replaced by things of other kinds."""
    for key in list(document):
        for other in OTHERS:
            changed = copy.deepcopy(document)
            changed[key] = other
            yield changed
        if isinstance(document[key], dict) and document[key]:
            name = next(iter(document[key]))
            for other in OTHERS:
                changed = copy.deepcopy(document)
                changed[key][name] = other
                yield changed


def rest_of_page(tmp_path: Path, names: dict[str, Any]) -> str:
    """The page of a cell with one sound probe and these files."""
    config = synthetic.config("pre-ln", (4, 128, 352), 1)
    folder = synthetic.write_cell(tmp_path / "runs", config, synthetic.result(config, 4.0))
    write_measures(folder, [probe_document("pruning", {"increase": [0.5] * 4})])
    for name, document in names.items():
        (folder / name).write_text(json.dumps(document).replace("Infinity", "1e999"))
    return report.build([tmp_path / "runs"], tmp_path / "out").read_text()


def test_a_cell_is_read_whatever_its_probes_and_sets_are(tmp_path) -> None:
    """Only read: to draw a page for each would take minutes."""
    config = synthetic.config("pre-ln", (4, 128, 352), 1)
    folder = synthetic.write_cell(tmp_path, config, synthetic.result(config, 4.0))
    sound = probe_document("angular", {"distance": square(5)})
    write_measures(folder, [probe_document("pruning", {"increase": [0.5] * 4})])
    record = {"status": "done", "path": str(folder), "copies": None}
    refused = 0
    for changed in mutated(sound):
        (folder / "probes" / "angular.json").write_text(json.dumps(changed))
        cell = read_cells([record])[str(folder)]
        assert "pruning" in cell.probes
        if "angular" not in cell.probes:
            refused += 1
            assert "angular.json is not what a probe writes" in cell.lost["probe angular"]
    assert refused > 40
    refused = 0
    for changed in mutated(domains_document({"coding": 2.0})):
        (folder / "domains.json").write_text(json.dumps(changed))
        cell = read_cells([record])[str(folder)]
        if cell.domains is None:
            refused += 1
            assert "domains.json is damaged" in cell.why_no_domains
    assert refused > 10


@pytest.mark.parametrize(
    ("changes", "gone"),
    [
        ({"axes": "ab"}, "angular.json is not what a probe writes"),
        ({"sample": {}}, "angular.json is not what a probe writes"),
        ({"thresholds": {"late": "<b>"}}, "angular.json is not what a probe writes"),
        ({"values": {"distance": [[1.0, float("inf")]]}}, "angular.json is not what"),
    ],
)
def test_a_page_says_what_is_missing_of_it(tmp_path, changes, gone) -> None:
    document = probe_document("angular", {"distance": square(5)}) | changes
    page = rest_of_page(tmp_path, {"probes/angular.json": document})
    assert gone in page
    assert "Pruning" in page


def test_what_was_not_measured_may_be_anything(tmp_path) -> None:
    config = synthetic.config("pre-ln", (4, 128, 352), 1)
    folder = synthetic.write_cell(tmp_path, config, None)
    record = {"status": "done", "path": str(folder), "copies": None}
    for other in OTHERS:
        document = synthetic.result(config, 4.0, not_measured=other)
        (folder / "result.json").write_text(json.dumps(document))
        lost = read_cells([record])[str(folder)].lost
        assert lost == ({"a": "{'b': []}"} if other == {"a": {"b": []}} else {})
