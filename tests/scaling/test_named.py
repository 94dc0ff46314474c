"""The laws that ship: where their constants come from, and what they give."""

import pytest

from depthbench.errors import InputError
from depthbench.folder import write_json
from depthbench.scaling import judge, named_laws, open_law
from depthbench.scaling.calibrate import calibrated
from depthbench.scaling.statements import MEASURES, statements
from tests.scaling.kit import law_of

CALIBRATED = "truncate-or-not/calibrated"
TRUNCATE = "2610.26030"
ISO_DEPTH = "2604.21106"


def verdicts(name: str):
    return {(each.statement.paper, each.statement.measure): each for each in judge(open_law(name))}


def test_shipped_constants_are_what_the_calibration_gives() -> None:
    shipped, solved = open_law(CALIBRATED), calibrated()
    assert shipped.constants == pytest.approx(solved.constants, rel=1e-6)
    assert shipped.recurrent_share == pytest.approx(solved.recurrent_share, rel=1e-6)
    assert (shipped.name, shipped.title, shipped.kind) == (solved.name, solved.title, solved.kind)


def test_calibration_agrees_with_the_one_worked_out_on_paper() -> None:
    law = open_law(CALIBRATED)
    assert law.recurrent_share == pytest.approx(0.49, abs=0.005)
    assert law.g == pytest.approx({"p": 0.237, "q": 1.022, "c": 1.06}, abs=0.005)
    assert law.beta == pytest.approx(0.42, abs=0.005)


def test_the_calibrated_law_meets_its_paper_and_says_what_it_was_fitted_to() -> None:
    found = {key: each for key, each in verdicts(CALIBRATED).items() if key[0] == TRUNCATE}
    assert len(found) >= 7
    assert {each.verdict for each in found.values()} == {"meets"}
    used = {measure for (_, measure), each in found.items() if each.used}
    assert used == {"truncation-saving", "parameter-saving", "loop-exponent"}


def test_a_calibrated_law_is_never_shown_as_published() -> None:
    law = open_law(CALIBRATED)
    assert law.kind == "calibrated"
    assert "calibrated" in law.name
    assert "calibrated" in law.title
    assert {name for name, origin in law.origin.items() if origin == "published"} == {"p", "q"}


def test_iso_depth_has_its_published_constants_and_meets_its_own_statements() -> None:
    law = open_law("iso-depth")
    published = {"E": 1.57, "alpha": 0.199, "beta": 0.369, "phi": 0.459}
    assert {name: law.constants[name] for name in published} == published
    assert open_law("iso-depth/hyper-connections").g == {"phi": 0.646}
    found = verdicts("iso-depth")
    own = {measure: each for (paper, measure), each in found.items() if paper == ISO_DEPTH}
    assert {each.verdict for each in own.values()} == {"meets"}
    assert own["equivalent-size"].value == pytest.approx(580e6, rel=1e-9)
    # 410M · (1 + 3f), with f from 410M · (1 + f·(4^0.459 − 1)) = 580M
    share = (580 / 410 - 1) / (4**0.459 - 1)
    assert law.recurrent_share == pytest.approx(share)
    assert own["equivalent-cost"].value == pytest.approx(410e6 * (1 + 3 * share))


def test_iso_depth_shows_where_it_disagrees() -> None:
    found = verdicts("iso-depth")
    exponent = found[TRUNCATE, "loop-exponent"]
    assert exponent.verdict == "disagrees"
    assert exponent.value is not None
    assert exponent.value >= 0.7
    assert found[TRUNCATE, "parameter-saving"].verdict == "disagrees"  # 15 %, below 27 to 32
    assert found[TRUNCATE, "truncation-saving"].verdict == "silent"
    assert "says nothing" in found[TRUNCATE, "truncation-saving"].reason


@pytest.mark.parametrize("name", sorted(named_laws()))
def test_every_constant_says_where_it_comes_from(name) -> None:
    law = open_law(name)
    assert law.origin.keys() == {*law.constants, "recurrent_share"}
    assert law.source.startswith("arXiv ")
    # The convention for what is not published: both terms are 1.3 nats at 1M and 2M.
    assert law.loss(0, 1e6, 1, 1, 2e6) == pytest.approx(1.57 + 2 * 1.3, rel=1e-9)


def test_every_statement_has_a_measure() -> None:
    assert {each.measure for each in statements()} == MEASURES.keys()
    assert {each.paper for each in statements()} == {TRUNCATE, ISO_DEPTH}


def test_laws_are_opened_by_name_file_and_folder(tmp_path) -> None:
    write_json(tmp_path / "law.json", law_of().model_dump(mode="json"))
    assert open_law(str(tmp_path)) == open_law(str(tmp_path / "law.json")) == law_of()
    with pytest.raises(InputError, match=r"unknown law 'iso-dept'.*iso-depth"):
        open_law("iso-dept")
    (tmp_path / "bad.yaml").write_text("name: x\nkind: publishd\n")
    with pytest.raises(InputError, match=r"bad\.yaml: kind = 'publishd'"):
        open_law(str(tmp_path / "bad.yaml"))
