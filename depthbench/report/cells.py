"""What lies in a cell's folder beside its result: probe documents, domain sets, or why not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from depthbench.folder import CellFolder, read_json
from depthbench.probes import names, read_documents
from depthbench.report.lines import Line, status_text
from depthbench.report.measured import ProbeDocument, SetsDocument, fault
from depthbench.store import Record

Document = Mapping[str, Any]
Array = NDArray[np.float64]
NOT_PROBED = "not asked for: `depthbench probe CELL` puts all probes to a trained cell"
NOT_SCORED = "not asked for: `depthbench eval CELL` scores a trained cell on the domain sets"
NO_NUMBER = "the probe gives no number here, as where there is no pair of late blocks"


@dataclass(frozen=True)
class Probed:
    """One probe's document, with its values as arrays of one or two axes, NaN where undefined."""

    document: Document
    values: Mapping[str, Array]

    @property
    def title(self) -> str:
        return str(self.document.get("title", self.document.get("probe", "")))

    @property
    def reason(self) -> str | None:
        """Why the design cannot answer."""
        return self.document.get("reason")


@dataclass(frozen=True)
class Cell:
    """A finished cell. `anchor` is its place on the page, `lost` why a measure failed, by name."""

    record: Record
    anchor: str
    probes: Mapping[str, Probed]
    domains: Document | None
    asked: Sequence[str]
    lost: Mapping[str, str]

    def why_no_probe(self, name: str) -> str:
        """Why the cell has no document of that probe."""
        if f"probe {name}" in self.lost:
            return f"not measured: {self.lost[f'probe {name}']}"
        if name in self.asked:
            return f"asked for, but not in the folder: `depthbench probe {self.record['path']}`"
        return NOT_PROBED

    @property
    def why_no_domains(self) -> str:
        if "domains" in self.lost:
            return f"not measured: {self.lost['domains']}"
        return NOT_SCORED


Cells = Mapping[str, Cell]


def read_cells(records: Iterable[Record]) -> Cells:
    """Every cell that is done, by path. What is missing in its folder is taken from its copies."""
    done = [record for record in records if record["status"] == "done"]
    return {record["path"]: _read(record, f"cell-{i}") for i, record in enumerate(done, 1)}


def _read(record: Record, anchor: str) -> Cell:
    probes: dict[str, Probed] = {}
    domains: Document | None = None
    asked: list[str] = []
    lost: dict[str, str] = {}
    for path in (record["path"], *(record["copies"] or "").split("; ")):
        folder = CellFolder(Path(path))
        if not path or not folder.path.is_dir():
            continue
        result = read_json(folder.result_path)
        asked += result["config"].get("measures", {}).get("probes", ())
        lost = _texts(result.get("not_measured")) | lost
        for name, document in read_documents(folder).items():
            values = _arrays(document)
            if values is None:
                again = f"run `depthbench probe {path} --probe {name}`"
                lost[f"probe {name}"] = f"{name}.json is not what a probe writes: {again}"
            else:
                probes.setdefault(name, Probed(document, values))
        if domains is None and folder.domains_path.exists():
            found = read_json(folder.domains_path)
            if wrong := fault(SetsDocument, found):
                again = f"run `depthbench eval {path}`"
                lost["domains"] = f"domains.json is damaged: {wrong}: {again}"
            else:
                domains = found
    return Cell(record, anchor, probes, domains, asked, lost)


def _texts(given: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in given.items()} if isinstance(given, Mapping) else {}


def _arrays(document: Document) -> dict[str, Array] | None:
    """The values of a probe's document, or None if it is none."""
    if fault(ProbeDocument, document):
        return None
    try:
        found = {name: np.array(v, dtype=float) for name, v in document["values"].items()}
    except (KeyError, AttributeError, TypeError, ValueError):
        return None
    fit = all(v.ndim in (1, 2) and v.size and not np.isinf(v).any() for v in found.values())
    return found if fit else None


def ordered(found: Iterable[str]) -> list[str]:
    """Names of probes in the order of a page; those this version does not know come last."""
    found = set(found)
    known = [name for name in names() if name in found]
    return known + sorted(found.difference(known))


def cells_of(line: Line, cells: Cells) -> list[Cell]:
    """The cells behind a line, one a seed."""
    return [cells[record["path"]] for record in line.done if record["path"] in cells]


def median_cell(line: Line, cells: Cells) -> Cell | None:
    """Of the cells that were probed the one with the median loss, the lower of two."""
    probed = [cell for cell in cells_of(line, cells) if cell.probes]
    probed.sort(key=lambda cell: (cell.record["loss"], cell.record["seed"]))
    return probed[(len(probed) - 1) // 2] if probed else None


def why_unprobed(line: Line, cells: Cells) -> str:
    """Why no cell of the line has any probe document."""
    found = cells_of(line, cells)
    if not found:
        return status_text(line.records)
    return found[0].why_no_probe(next(iter(found[0].asked), ""))
