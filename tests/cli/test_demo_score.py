"""crdtmem.cli.demo_score"""

import pytest

from crdtmem.cli.demo_score import (
    FILLER_LINES,
    Score,
    appended_line,
    filler_line,
    score,
    shortened,
)

LINES = [appended_line("lane-1", n) for n in (1, 2, 3)]
FILLER = [filler_line(n) for n in range(1, FILLER_LINES + 1)]


def score_of(lines, in_doubt=()):
    return score("\n".join(lines), {"lane-1": [1, 2, 3]}, in_doubt)


def test_a_whole_text_is_clean():
    found = score_of([*FILLER, *LINES])

    assert found == Score(expected=3, kept=3, lost=0, doubled=0, torn=0)
    assert found.is_clean


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (LINES[:2], {"kept": 2, "lost": 1}),
        ([*LINES, LINES[0]], {"doubled": 1}),
        ([*LINES, FILLER[0], FILLER[0]], {"doubled": 1}),
        ([*LINES, LINES[0][:9]], {"torn": 1}),
        ([LINES[0] + LINES[1], LINES[2]], {"kept": 1, "lost": 2, "torn": 1}),
    ],
)
def test_what_went_wrong_is_counted(lines, fault):
    found = score_of(lines)
    clean = {"expected": 3, "kept": 3, "lost": 0, "doubled": 0, "torn": 0}

    assert found == Score(**{**clean, **fault})
    assert not found.is_clean


def test_a_line_in_doubt_may_be_there_and_must_be_whole():
    doubtful = appended_line("lane-1", 4)

    assert score_of(LINES, [doubtful]).is_clean
    assert score_of([*LINES, doubtful], [doubtful]).is_clean
    assert score_of([*LINES, doubtful[:-1]], [doubtful]).torn == 1


def test_the_rewriter_shortens_the_first_long_lines():
    once = shortened("\n".join([*FILLER[:3], LINES[0]]), 2)

    assert once.split("\n") == [
        filler_line(1, is_short=True),
        filler_line(2, is_short=True),
        FILLER[2],
        LINES[0],
    ]
    assert score(shortened("\n".join(FILLER), 100), {}).is_clean
