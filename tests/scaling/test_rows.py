"""Reading runs, and refusing what cannot be one."""

import json

import pandas as pd
import pytest

from depthbench.errors import InputError
from depthbench.folder import CellFolder
from depthbench.ledger import ledger
from depthbench.scaling import read_runs
from tests.kit import cell_config

HEADER = "N_once,N_rec,T,B,D,loss,seed"
GOOD = "1e5,2e5,2,1,1000000,4.25,1"


def file_of(tmp_path, *lines, header=HEADER):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_numbers_arrive(tmp_path) -> None:
    path = file_of(tmp_path, GOOD, "1e5,2e5,2,1,1000000,4.5,2", "5e4,1e5,1,1,2e6,4.75,1")
    runs, left_out = read_runs(path)
    assert left_out == {}
    assert runs.N_once.tolist() == [1e5, 1e5, 5e4]
    assert runs.N_rec.tolist() == [2e5, 2e5, 1e5]
    assert runs.D.tolist() == [1e6, 1e6, 2e6]
    assert runs.loss.tolist() == [4.25, 4.5, 4.75]
    assert runs.pairs == [(1, 1), (2, 1)]
    assert runs.recurrent_share == pytest.approx(2 / 3)


def test_parquet_reads_the_same(tmp_path) -> None:
    path = file_of(tmp_path, GOOD, "5e4,1e5,1,1,2e6,4.75,1")
    pd.read_csv(path).to_parquet(tmp_path / "rows.parquet")
    assert (read_runs(tmp_path / "rows.parquet")[0].designs == read_runs(path)[0].designs).all()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1e5,2e5,1,2,1e6,4.2,1", "line 3: B = 2 exceeds T = 1"),
        ("1e5,2e5,1,0,1e6,4.2,1", "line 3: B = 0 must be at least 1"),
        ("1e5,2e5,0,1,1e6,4.2,1", "line 3: T = 0 must be at least 1"),
        ("1e5,2e5,1.5,1,1e6,4.2,1", "line 3: T = 1.5 is not a whole number"),
        ("1e5,2e5,1,1,1e6,nan,1", "line 3: loss = nan is not finite"),
        ("1e5,2e5,1,1,inf,4.2,1", "line 3: D = inf is not finite"),
        ("1e5,2e5,1,1,1e6,0,1", "line 3: loss = 0 must be above 0"),
        ("1e5,2e5,1,1,1e6,,1", "line 3: loss = '' is not a number"),
        ("1e5,2e5,1,1", "line 3: D = None is not a number"),
        ("-1,2e5,1,1,1e6,4.2,1", "line 3: N_once = -1 must be at least 0"),
        ("0,0,1,1,1e6,4.2,1", "line 3: N_once and N_rec are both 0"),
        (GOOD, "line 3 repeats .*rows.csv, line 2"),
    ],
)
def test_bad_rows_are_refused_with_their_line(tmp_path, line, reason) -> None:
    with pytest.raises(InputError, match=rf"rows\.csv, {reason}"):
        read_runs(file_of(tmp_path, GOOD, line))


def test_lines_are_those_of_the_file(tmp_path) -> None:
    """A quoted cell may hold line breaks, as error messages do."""
    header = HEADER + ",error"
    path = file_of(tmp_path, GOOD + ',"two\nlines"', "1e5,2e5,1,1,1e6,x,1,", header=header)
    with pytest.raises(InputError, match="line 4: loss = 'x'"):
        read_runs(path)


def test_missing_columns_are_named(tmp_path) -> None:
    with pytest.raises(InputError, match=r"has no column N_rec, loss: .*found: N_once, T, B, D"):
        read_runs(file_of(tmp_path, "1,1,1,1", header="N_once,T,B,D"))
    pd.DataFrame({"T": [1]}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="has no column N_once"):
        read_runs(tmp_path / "rows.parquet")


def test_without_seeds_equal_rows_are_refused_and_other_losses_are_repeats(tmp_path) -> None:
    header = "N_once,N_rec,T,B,D,loss"
    with pytest.raises(InputError, match=r"line 3 repeats .*add a column seed"):
        read_runs(file_of(tmp_path, "1,2,1,1,9,4.5", "1,2,1,1,9,4.5", header=header))
    assert (
        len(read_runs(file_of(tmp_path, "1,2,1,1,9,4.5", "1,2,1,1,9,4.6", header=header))[0]) == 2
    )


def test_a_seed_makes_equal_rows_two_runs_and_may_not_come_twice(tmp_path) -> None:
    assert len(read_runs(file_of(tmp_path, GOOD, GOOD[:-1] + "2"))[0]) == 2
    with pytest.raises(InputError, match="line 3 repeats"):
        read_runs(file_of(tmp_path, GOOD, GOOD.replace("4.25", "4.26")))


def test_runs_that_did_not_finish_are_left_out_and_counted(tmp_path) -> None:
    header = HEADER + ",status"
    path = file_of(tmp_path, GOOD + ",done", "1e5,2e5,1,1,1e6,,2,failed", header=header)
    runs, left_out = read_runs(path)
    assert (len(runs), left_out) == (1, {"not done": 1})
    with pytest.raises(InputError, match=r"no run to fit, 1 left out \(not done\)"):
        read_runs(file_of(tmp_path, "1e5,2e5,1,1,1e6,,2,failed", header=header))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_controls_of_a_looped_suite_are_left_out_and_counted(tmp_path, suffix) -> None:
    loops = ['{"layout": "prelude-core-coda", "tied": true}', '{"layout": "prelude-core-coda"}']
    loops += ['{"layout": "prelude-core-coda", "tied": false}', None, None]
    frame = pd.DataFrame({"N_once": 1e5, "N_rec": 2e5, "T": 2, "B": 1, "D": 1e6, "loop": loops})
    frame["loss"] = [4.1, 4.2, 4.3, 4.4, 4.5]
    path = tmp_path / f"rows{suffix}"
    frame.to_csv(path) if suffix == ".csv" else frame.to_parquet(path)
    runs, left_out = read_runs(path)
    assert runs.loss.tolist() == [4.1, 4.2]
    assert left_out == {"a control whose loop is untied": 1, "a control without a loop": 2}


def test_runs_of_tuning_are_left_out_and_counted(tmp_path) -> None:
    """They are of the scored runs' numbers, and would be taken for repetitions of them."""
    path = file_of(tmp_path, GOOD + ",scored", GOOD + ",tuning", header=HEADER + ",role")
    runs, left_out = read_runs(path)
    assert len(runs) == 1
    assert left_out == {"a run that looked for a learning rate": 1}


@pytest.mark.parametrize(
    ("column", "first", "second", "said"),
    [
        ("corpus_hash", "aa", "bb", "corpus_hash aa .*line 3 has bb"),
        ("recipe", "{}", "{1}", "keep those of one recipe"),
        (
            "loop",
            '"{""layout"": ""whole"", ""rounds"": 2}"',
            '"{""layout"": ""prelude-core-coda"", ""injection"": ""add""}"',
            "kind of loop whole .*prelude-core-coda add",
        ),
    ],
)
def test_runs_of_two_kinds_are_no_data_of_one_law(tmp_path, column, first, second, said) -> None:
    other = GOOD.replace("4.25,1", "4.5,2")
    path = file_of(tmp_path, f"{GOOD},{first}", f"{other},{second}", header=f"{HEADER},{column}")
    with pytest.raises(InputError, match=said):
        read_runs(path)


def test_a_loop_that_is_no_loop_is_named(tmp_path) -> None:
    path = file_of(tmp_path, GOOD + ",twice", header=HEADER + ",loop")
    with pytest.raises(InputError, match="line 2: loop = 'twice' is not the JSON of a loop"):
        read_runs(path)


def test_a_folder_of_cells_is_read_like_its_table(tmp_path) -> None:
    shape = {"layers": 4, "d_model": 8, "ffn": 16, "heads": 2}
    loop = {"layout": "prelude-core-coda", "prelude": 1, "coda": 1, "forward": 4, "backward": 2}
    for name, own in (("looped", loop), ("plain", None)):
        cell = cell_config(shape=shape, loop=own)
        result = {
            "schema": 1,
            "status": "done",
            "config": cell.model_dump(mode="json"),
            "step": 12,
            "measures": {"loss": 4.25, "bits_per_byte": 1.5},
            "ledger": ledger(cell).as_dict(),
        }
        CellFolder(tmp_path / name).create(cell)
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    runs, left_out = read_runs(tmp_path)
    block = 4 * 8 * 8 + 3 * 8 * 16 + 2 * 8
    once, recurrent = 2 * block + 8, 2 * block + 2 * 8 * 8 + 8
    assert runs.designs.tolist() == [[once, recurrent, 4, 2, 12 * 32]]
    assert runs.loss.tolist() == [4.25]
    assert left_out == {"a control without a loop": 1}


def test_a_law_is_of_one_design(tmp_path) -> None:
    header = HEADER + ",design"
    path = file_of(tmp_path, GOOD + ",plain", "1e5,2e5,1,1,1e6,4.4,1,other", header=header)
    with pytest.raises(InputError, match=r"designs other, plain.*--design"):
        read_runs(path)
    assert read_runs(path, "other")[0].loss.tolist() == [4.4]
    with pytest.raises(InputError, match=r"unknown design 'plian'.*plain"):
        read_runs(path, "plian")


def test_what_is_no_table_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*none\.csv"):
        read_runs(tmp_path / "none.csv")
    (tmp_path / "rows.parquet").write_text("no parquet")
    with pytest.raises(InputError, match=r"cannot read .*rows\.parquet"):
        read_runs(tmp_path / "rows.parquet")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InputError, match="has no column N_once"):
        read_runs(tmp_path / "empty.csv")
