"""What is told of a cell is what its files say, number by number."""

import pytest

from depthbench.errors import DepthbenchError
from depthbench.tracking.points import Point, read_points
from tests.tracking.kit import append, cell, finish, record


def test_every_number_has_its_name_step_and_time(tmp_path) -> None:
    folder = cell(tmp_path)
    append(
        folder.metrics_path,
        record(2),
        {"step": 2, "tokens": 64, "evaluation": {"loss": 3.5, "loss_by_source": {"code": 3.0}}},
        record(4) | {"grad_norm": 0.5, "note": "text", "warm": True},
    )
    append(folder.layers_path, {"step": 3, "output_rms": [1.0, None, 3.0], "paths": [[1], [2, 3]]})
    finish(folder, 4)
    assert read_points(folder) == [
        Point("train", 2, 1.0, {"train/tokens": 64, "train/loss": 0.5, "train/elapsed": 1.0}),
        Point("evaluation", 2, 1.0, {"evaluation/loss": 3.5, "evaluation/loss_by_source/code": 3}),
        Point(
            "layers",
            3,
            1.0,
            {
                "layers/output_rms/0": 1,
                "layers/output_rms/2": 3,
                "layers/paths/0/0": 1,
                "layers/paths/1/0": 2,
                "layers/paths/1/1": 3,
            },
        ),
        Point(
            "train",
            4,
            2.0,
            {"train/tokens": 128, "train/loss": 0.25, "train/grad_norm": 0.5, "train/elapsed": 2},
        ),
        Point(
            "result",
            4,
            2.0,
            {"result/loss": 0.7, "result/loss_by_source/a b": 2, "result/ledger/parameters": 12},
        ),
    ]


def test_a_line_that_is_being_written_and_a_passing_result_are_not_told(tmp_path) -> None:
    folder = cell(tmp_path)
    append(folder.metrics_path, record(1))
    with open(folder.metrics_path, "ab") as file:
        file.write(b'{"step": 2, "loss": 0.')
    finish(folder, 1, status="interrupted")
    assert [(point.heading, point.step) for point in read_points(folder)] == [("train", 1)]


def test_damage_is_an_error_and_no_file_is_no_point(tmp_path) -> None:
    folder = cell(tmp_path)
    assert read_points(folder) == []
    folder.metrics_path.write_bytes(b"{}\n{}\n")
    with pytest.raises(DepthbenchError, match="line 1 is damaged"):
        read_points(folder)
