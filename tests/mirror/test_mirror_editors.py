"""Editors and agents at work on mirrored files, while two processes append."""

import pytest

from tests import scripts
from tests.child import Children
from tests.mirror.desk import Desk
from tests.mirror.editors import EDITED, EDITORS, VIM
from tests.oracle import judge

pytestmark = pytest.mark.process

LANES = ("ann", "bob")
APPENDS = 25
TEXT = "\n".join(f"line {number}" for number in range(1, 8))


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    with Desk(tmp_path_factory.mktemp("editors")) as desk:
        yield desk


@pytest.fixture(scope="module")
def lanes():
    with Children() as children:
        yield [children.spawn() for _ in LANES]


def start_appending(desk, lanes, label, count=APPENDS):
    for lane, child in zip(LANES, lanes, strict=True):
        child.start(
            scripts.append_to_slot,
            path=str(desk.store),
            slot=label,
            lane=lane,
            count=count,
            pause_s=0.02,
        )


@pytest.mark.requirement("mirror-6", "mirror-7")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                VIM is None and name.startswith("vim"),
                reason="there is no vim here: apt-get install vim-tiny",
            ),
        )
        for name in EDITORS
    ],
)
def test_a_save_is_one_edit_and_no_line_of_others_is_lost(desk, lanes, name):
    label = name.replace(" ", "_").replace("=", "_").replace("-", "")
    file = desk.make(label, TEXT)
    slots = {view.label for view in desk.memory.slots(templates=False)}
    start_appending(desk, lanes, label)
    with EDITORS[name](file) as save:
        for child in lanes:
            while child.wait_for("appended")["count"] < APPENDS // 2:
                pass
        desk.wait_until(lambda: "ann#" in file.read_text(encoding="utf-8"))
        save()
    written = dict(zip(LANES, (child.result() for child in lanes), strict=True))
    desk.wait_until(lambda: EDITED in desk.text(label) and desk.is_equal(label))
    old = [line for line in TEXT.split("\n") if line != "line 3"]
    verdict = judge(desk.text(label), written, other_lines=[*old, EDITED])

    assert verdict.faults == {}
    assert desk.text(label).split("\n")[:7] == TEXT.replace("line 3", EDITED).split(
        "\n"
    )
    assert desk.imports(label) == 1
    assert min(desk.sizes(label)[:-1]) >= len(TEXT)
    assert {view.label for view in desk.memory.slots(templates=False)} == slots
