"""What the template shows of a looped part."""

from collections.abc import Sequence
from dataclasses import dataclass

from depthbench.report import facts
from depthbench.report.cells import Cell, Cells
from depthbench.report.drawn import few, legend
from depthbench.report.looped import Looped
from depthbench.report.looped_panels import BEATEN, EQUAL_FLOPS, UNTIED
from depthbench.report.looped_statements import hides, shows
from depthbench.report.looped_tables import (
    KAPPA_COLUMNS,
    STACK_COLUMNS,
    kappa_rows,
    stack_rows,
)
from depthbench.report.loops import read_loop, words
from depthbench.report.outputs import LoopedNames
from depthbench.report.panels import Panel
from depthbench.report.probe_view import ProbeView, probes_of_part
from depthbench.report.series import series_of
from depthbench.report.sheets import Sheet, sheets
from depthbench.report.values import Footnotes, count, joined
from depthbench.report.views import Looks, Part, Table, table
from depthbench.report.worth import CONSTANT_COLUMNS, constant_rows, worth_sentences

SIGNS = {EQUAL_FLOPS: "□", UNTIED: "◇", BEATEN: "∘"}
LEAD = (
    "One row a design: the cell with a loop that executes most blocks of those that were probed. "
    "Maps run over executed blocks, so that every visit of a block has a place of its own."
)


@dataclass(frozen=True)
class LoopedView:
    """All that the template shows of one looped part."""

    differing: dict[str, str]
    shows: list[str]
    hides: list[str]
    depth: Part
    compute: Part
    worth: Part
    stacks: Table
    kappa: Table | None
    probes: ProbeView
    setup: list[facts.Fact]
    sheets: list[Sheet]
    files: LoopedNames


def looped_view(part: Looped, looks: Looks, cells: Cells, files: LoopedNames) -> LoopedView:
    """The view of a looped part."""
    notes, kappa_notes = Footnotes(), Footnotes()
    rows = stack_rows(part.stacks, looks, notes, cells)
    kappas = kappa_rows(part.stacks, looks, kappa_notes, cells)
    return LoopedView(
        differing=part.section.differing,
        shows=shows(part, looks),
        hides=hides(part),
        depth=_depth(part, looks),
        compute=_compute(part, looks),
        worth=_worth(part, looks),
        stacks=table(
            STACK_COLUMNS,
            rows,
            "One line for each design, shape, loop, budget and learning rate; by shape and budget, "
            "then stacks without a loop, with one, and untied.",
            "stacks",
            notes,
        ),
        kappa=table(
            KAPPA_COLUMNS,
            kappas,
            "Visit alignment κ of each design and loop, over all shapes and budgets.",
            "kappa",
            kappa_notes,
        )
        if kappas
        else None,
        probes=probes_of_part(part.probes, looks, LEAD),
        setup=facts.setup_facts(part.section.records),
        sheets=sheets(part.members, part.probes, looks, _called),
        files=files,
    )


def _called(cell: Cell, looks: Looks) -> str:
    record = cell.record
    shape = f"L{record['layers']} / d{record['d_model']}"
    loop, tokens = words(read_loop(record["loop"])), count(record["tokens"])
    label = looks[series_of(record)].label
    return f"{label}, {shape}, {loop}, {tokens} tokens, seed {record['seed']}"


def _depth(part: Looped, looks: Looks) -> Part:
    if not part.depth:
        waits = "No run of a loop B = T has finished yet."
        none = "No shape has loops B = T of two executed depths."
        return Part([waits if part.towers else none], [], [], [])
    say = [
        "Every panel has one stack of blocks, which more loops run more often: the parameters stay "
        "the same. Gradients pass every visit (B = T). The dotted rule is the loss of the same "
        "stack without a loop.",
        f"{_points(part.depth)}{_kinds(part.depth)}",
    ]
    left_out = len(part.towers) - len(part.depth)
    if left_out > 0:
        say.append(f"{left_out} more such stacks stand in the table only.")
    towers = {tower.title: tower for tower in part.towers}
    texts = [(p, f"{count(towers[p.title].tokens)} tokens.") for p in part.depth]
    figures = few(texts, looks)
    shown = {series for panel in part.depth for series in panel.series}
    return Part(say, figures, legend(shown, looks), [])


def _points(panels: Sequence[Panel]) -> str:
    """What a point and its bar are."""
    several = any(v.sd is not None for p in panels for by in p.values.values() for v in by.values())
    return "Points are means over seeds, bars their deviation." if several else "One run a point."


def _kinds(panels: Sequence[Panel]) -> str:
    """What the open marks are."""
    kinds = dict.fromkeys(mark.kind for panel in panels for mark in panel.marks)
    meant = {
        EQUAL_FLOPS: "a stack without a loop of as many blocks, which has more parameters and saw "
        "as many tokens as the loop's training FLOPs buy",
        UNTIED: "a stack of as many blocks whose visits have weights of their own, trained on as "
        "many tokens",
        BEATEN: "a run that a cheaper one of the same (T, B) beats or equals",
    }
    marks = [f"{SIGNS[kind]} {meant[kind]}" for kind in kinds]
    return f" Open marks: {joined(marks)}." if marks else ""


def _compute(part: Looped, looks: Looks) -> Part:
    if not part.compute:
        return Part(["No run has finished yet."], [], [], [])
    say = [
        "A line joins the runs with one (T, B), of all sizes and budgets, that no cheaper run with "
        "the same (T, B) equals; (T, B) are forward loops and loops with gradients. The grey band "
        "is the frontier: the runs that no cheaper one equals, whatever their loop.",
        f"{_points(part.compute)}{_kinds(part.compute)}",
    ]
    texts = [(panel, "All sizes and budgets.") for panel in part.compute]
    figures = few(texts, looks)
    shown = {series for panel in part.compute for series in panel.series}
    return Part(say, figures, legend(shown, looks), [])


def _worth(part: Looped, looks: Looks) -> Part:
    say = worth_sentences(part.fits, looks)
    if not part.worth:
        return Part(say, [], [], [])
    notes = Footnotes()
    text = "Bars: central 95 % of the bootstrap. Dotted: g = 1, where a loop is worth nothing."
    rows = constant_rows(part.fits, looks, notes)
    caption = "Constants of g(T, B) as fitted."
    return Part(
        say,
        few([(part.worth, text)], looks),
        legend(part.worth.series, looks),
        [table(CONSTANT_COLUMNS, rows, caption, "constants", notes)],
    )
