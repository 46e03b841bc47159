from lab_engine.checks import progress
from lab_engine.course import COURSE, HARDWARE
from tools.bootstrap import ROOT


def test_a_lab_is_ready_when_its_notebook_exists():
    for lab in COURSE:
        assert lab.ready == (ROOT / "labs" / f"{lab.stem}.ipynb").exists()


def test_the_labs_are_numbered_in_order_and_every_notebook_is_one_of_them():
    assert [lab.stem[:2] for lab in COURSE] == [f"{number:02d}" for number in range(len(COURSE))]
    assert {path.stem for path in (ROOT / "labs").glob("*.ipynb")} <= {lab.stem for lab in COURSE}


def test_every_lab_says_what_each_machine_can_do():
    assert all(len(lab.hardware) == len(HARDWARE) and all(lab.hardware) for lab in COURSE)


def test_every_lab_with_exercises_is_in_the_course():
    assert set(progress.LABS) <= {lab.stem for lab in COURSE}
