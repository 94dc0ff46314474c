"""Pages made from the code hold all of it: every design, probe, suite, ladder, column and verb."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

import residuals
from depthbench import columns, probes
from depthbench.cli import app
from depthbench.config import CoreLoop, OptimizerRecipe, Shape
from depthbench.shapes import load_ladders
from depthbench.suite import Suite, suite_names
from residuals.probing import Probed
from tests.docs.kit import Reader, Section, words

Page = Callable[[str], Reader]


def test_every_design_stands_with_its_equation_paper_version_and_options(page: Page) -> None:
    sections = page("designs").sections
    for design in residuals.all_designs():
        section = sections[design.name]
        assert words(design.summary()) in words(section.text), design.name
        assert section.row("version")[1] == str(design.version)
        assert section.row("can run in a loop")[1] == ("yes" if design.can_loop else "no")
        if design.paper[:1].isdigit():
            assert f"https://arxiv.org/abs/{design.paper}" in section.links
        for option, default in design.option_defaults().items():
            assert section.row(option)[1].lower() == str(default).lower(), (design.name, option)


@pytest.mark.parametrize(
    ("title", "added", "products", "sums"),
    [
        ("Pre-LN", 0, 0, 0),
        # One more norm gain for each of 2K sublayers.
        ("Sandwich-LN", 48 * 1024, 0, 0),
        # L((m·d + 1)(m² + 2m) + 3) with L = 48, m = 4, d = 1024.
        ("mHC", 48 * ((4 * 1024 + 1) * 24 + 3), None, None),
        # A map d → 2d in all blocks but the last; its product is 2·2d·d a token.
        ("MoDA", 23 * 2 * 1024 * 1024, 23 * 4 * 1024 * 1024, 4 * 1024 * sum(range(0, 48, 2))),
    ],
)
def test_costs_are_those_of_24_layers_of_width_1024(
    page: Page, title: str, added: int, products: int | None, sums: int | None
) -> None:
    row = page("designs").sections["cost"].row(title)
    assert int(row[1].replace(",", "")) == added
    for shown, expected in zip(row[3:5], (products, sums), strict=True):
        assert expected is None or int(shown.replace(",", "")) == expected


def test_every_probe_stands_with_definition_unit_and_thresholds(page: Page) -> None:
    sections = page("probes").sections
    for probe in map(probes.get, probes.names()):
        section = sections[probe.name]
        assert words(probe.definition) in words(section.text), probe.name
        assert section.row("unit")[1] == words(probe.unit)
        for threshold, value in probe.thresholds.items():
            assert f"{probe.name}.{threshold} = {value:g}" in section.row("thresholds")[1]


def test_a_probe_names_the_designs_that_can_answer_it(page: Page) -> None:
    """Of mixing: those that override what the contract says of one stream. Of partial sums: one."""
    several_streams = {d.name for d in residuals.all_designs() if d.mixing is not Probed.mixing}
    for probe, answering in (("transport", several_streams), ("dead-segment", {"block-attnres"})):
        section = page("probes").sections[probe]
        named = {link.partition("#")[2] for link in section.links if "designs" in link}
        assert named == answering
        assert "No answer from all designs but" in words(section.text)


def test_a_probe_of_visits_says_that_a_stack_without_loops_has_none(page: Page) -> None:
    assert "No answer without a loop" in words(page("probes").sections["alignment"].text)
    assert "No answer" not in page("probes").sections["angular"].text


@pytest.mark.parametrize(
    ("suite", "cells"),
    [
        ("quick", "30 scored"),  # ten designs, three shapes, one seed
        ("looped-quick", "9 scored"),  # three designs, three numbers of rounds
        # Ten designs, four shapes, two seeds, and three more of the baseline; three rates at two.
        ("laptop", f"{10 * 4 * 2 + 3} scored, {10 * 3 * 2} for tuning"),
    ],
)
def test_a_suite_stands_with_its_cells(page: Page, suite: str, cells: str) -> None:
    assert page("suites").sections[f"suite-{suite}"].row("cells")[1] == cells


def test_every_suite_and_every_shape_of_every_ladder_stands(page: Page) -> None:
    sections = page("suites").sections
    assert {f"suite-{name}" for name in suite_names()} <= sections.keys()
    for ladder in load_ladders().values():
        rows = sections[f"ladder-{ladder.name}"].rows[1:]
        shapes = [tuple(map(int, row[:5])) for row in rows]
        assert shapes == [tuple(s.model_dump().values()) for s in ladder.shapes], ladder.name
        assert [int(row[-1].replace(",", "")) for row in rows] == [
            ladder.count(shape) for shape in ladder.shapes
        ]


def test_every_field_of_a_suite_has_type_default_and_meaning(page: Page) -> None:
    schema = page("suites").sections["schema"]
    nested = {
        "": Suite,
        "optimizer.": OptimizerRecipe,
        "ladder.shapes[].": Shape,
        "loops[].": CoreLoop,
    }
    for prefix, model in nested.items():
        for name in model.model_fields:
            rows = [row for row in schema.rows if row[0] == f"{prefix}{name}"]
            assert rows, f"{prefix}{name}"
            for row in rows:
                assert all(row), row
    assert schema.row("loops[].rounds")[1:3] == ["integer (≥ 1, ≤ 256)", "required"]
    assert schema.row("optimizer.beta2")[1:3] == ["number (≥ 0, < 1)", "0.95"]
    assert schema.row("match")[1:3] == ["shape or total", "shape"]


def test_every_column_stands_with_type_and_meaning(page: Page) -> None:
    section = page("rows").sections["rows"]
    for name, column in {**columns.COLUMNS, **columns.FAMILIES}.items():
        assert section.row(name)[2] == words(column.meaning)
    assert section.row("loss")[1] == "number"
    assert section.row("seed")[1] == "integer"


def _verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    members = getattr(command, "commands", None)
    if members is None:
        yield "-".join(path), command
    for name, member in (members or {}).items():
        yield from _verbs(member, (*path, name))


def test_every_verb_stands_with_its_options_and_help(page: Page) -> None:
    sections = page("command-line").sections
    verbs = dict(_verbs(typer.main.get_command(app)))
    assert {"run", "report", "scaling-plan"} <= verbs.keys()
    for name, command in verbs.items():
        section: Section = sections[name]
        assert words(command.help) in words(section.text), name
        for parameter in command.params:
            (row,) = (r for r in section.rows[1:] if _names(parameter, r[0]))
            assert row[3] == words(parameter.help or ""), (name, parameter.name)
            if parameter.required:
                assert row[2] == "required"


def _names(parameter: Any, cell: str) -> bool:
    first = parameter.opts[0]
    if first.startswith("-"):
        return bool(cell.replace(",", "").split()[0] == first)
    return cell == str(parameter.metavar or parameter.name).upper().replace("_", "-")
