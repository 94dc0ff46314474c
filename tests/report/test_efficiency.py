"""Costs: ratios within one host, hours only where they compare, and how each number is had."""

from collections.abc import Callable
from typing import Any

import pytest

from depthbench.report.efficiency import COST_COLUMNS, cost_panels, cost_rows, hosts
from depthbench.report.lines import best_lines, lines_of
from depthbench.report.panels import Panel
from depthbench.report.series import looks
from depthbench.report.values import Footnotes, duration
from depthbench.store import Record

Make = Callable[..., Record]


def measured(record: Make, design: str, **changes: Any) -> Record:
    costs = {
        "train_flops_per_token": 6_000_000,
        "prefill_flops": 20_000_000_000,
        "kv_cache_bytes": 4_000_000,
        "activation_bytes": 9_000_000,
        "peak_memory_bytes": 440_000_000,
        "device_hours": 0.5,
        "tokens_per_second": 1000.0,
        "step_seconds": 0.25,
    }
    return record(design=design, **{**costs, **changes})


def drawn(records: list[Record]) -> dict[str, Panel]:
    lines = lines_of(records)
    return {p.measure: p for p in cost_panels(lines, best_lines(lines), list(looks(records)))}


def table(records: list[Record]) -> dict[str, dict[str, str]]:
    rows = cost_rows(lines_of(records), looks(records), Footnotes())
    titles = [column.title for column in COST_COLUMNS]
    texts = [[v.reason or v.text for v in row.values] for row in rows]
    return {row[0]: dict(zip(titles, row, strict=True)) for row in texts}


def test_a_step_is_compared_with_pre_ln_of_the_same_host(record: Make) -> None:
    records = [
        measured(record, "pre-ln", host="slow", seed=1, tokens_per_second=100.0),
        measured(record, "pre-ln", host="fast", seed=2, tokens_per_second=1000.0),
        measured(record, "hc", host="slow", seed=1, tokens_per_second=50.0),
        measured(record, "lns", host="elsewhere", tokens_per_second=50.0),
    ]
    panel = drawn(records)["relative_step"]
    found = {s.design: [v.mean for v in by.values()] for s, by in panel.values.items()}
    assert found == {"pre-ln": [pytest.approx(1.0)], "hc": [pytest.approx(2.0)]}
    assert table(records)["HC"]["Step / Pre-LN"] == "2.00 ×"
    assert table(records)["LNS"]["Step / Pre-LN"].startswith("no Pre-LN speed of this shape")


def test_hours_of_several_hosts_are_listed_and_not_drawn(record: Make) -> None:
    one = [measured(record, "pre-ln"), measured(record, "hc", device_hours=1.5)]
    assert [v.mean for by in drawn(one)["device_hours"].values.values() for v in by.values()] == [
        *(0.5, 1.5)
    ]
    two = [one[0], one[1] | {"host": "b"}]
    assert "device_hours" not in drawn(two)
    assert hosts(lines_of(two)) == ["a (cpu, 1 threads)", "b (cpu, 1 threads)"]
    assert table(two)["HC"]["Device hours"] == "1.5"


def test_formulas_stand_also_where_no_run_has_finished(record: Make) -> None:
    lost = measured(record, "hc", status="diverged", diverged_step=3, loss=None)
    found = table([measured(record, "pre-ln"), lost])["HC"]
    assert found["Prefill FLOPs"] == "20.0\N{NO-BREAK SPACE}G"
    assert found["KV cache"] == "4.00\N{NO-BREAK SPACE}M"
    assert found["Activations"] == "no run of this line has finished"
    panels = drawn([measured(record, "pre-ln"), lost])
    assert {s.design for s in panels["kv_cache_bytes"].values} == {"pre-ln", "hc"}
    assert {s.design for s in panels["activation_bytes"].values} == {"pre-ln"}


def test_what_was_not_recorded_says_so(record: Make) -> None:
    found = table([measured(record, "pre-ln", activation_bytes=None)])["Pre-LN"]
    assert found["Activations"] == "the version of depthbench that ran this line did not record it"
    assert "activation_bytes" not in drawn([measured(record, "pre-ln", activation_bytes=None)])


def test_every_column_says_how_it_is_had() -> None:
    how = {column.title: column.meaning for column in COST_COLUMNS}
    for title in ("Train FLOPs/token", "Prefill FLOPs", "KV cache"):
        assert how[title].startswith("By formula")
    for title in ("Device hours", "Peak memory", "Step"):
        assert how[title].startswith("Measured")
    assert "high-water mark of resident memory of the cell's process" in how["Peak memory"]


@pytest.mark.parametrize(("hours", "text"), [(0.002, "7.2 s"), (0.25, "15 min"), (3.456, "3.46 h")])
def test_durations(hours: float, text: str) -> None:
    assert duration(hours) == text
