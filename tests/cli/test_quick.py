"""crdtmem.cli.quick: whatever it reads, click reads alike."""

from itertools import chain

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.cli.grammar import Invocation
from crdtmem.cli.options import GLOBAL_OPTIONS, QUICK_COMMANDS
from crdtmem.cli.quick import read_quickly
from crdtmem.cli.tree import read

VALUES = {
    "text": ["a", "-", "", "- x", "--json"],
    "whole": ["1", "-2", "x"],
    "seconds": ["0.5", "x"],
    "lines": ["2-3", "x"],
}


def option_words(option):
    names = st.sampled_from(option.names)
    if not option.takes_value:
        return names.map(lambda name: [name])
    values = st.sampled_from(VALUES.get(option.kind, [*option.choices, "x"]))
    pairs = st.tuples(names, values)
    return pairs.map(list) | pairs.map(lambda pair: [f"{pair[0]}={pair[1]}"])


def lines_of(command):
    anywhere = st.one_of(*map(option_words, GLOBAL_OPTIONS))
    inside = st.one_of(*map(option_words, (*command.options, *GLOBAL_OPTIONS)))
    words = st.sampled_from([["a"], ["-"], ["--typo"], ["-x"], ["--"], ["--help"]])
    before = st.lists(anywhere, max_size=2)
    after = st.lists(inside | words, max_size=5)
    return st.tuples(before, after).map(
        lambda parts: [*chain(*parts[0]), command.name, *chain(*parts[1])]
    )


# Each example builds the commands of click anew.
@settings(max_examples=settings().max_examples // 2)
@given(st.sampled_from(QUICK_COMMANDS).flatmap(lines_of))
def test_a_line_that_is_read_quickly_means_the_same_to_click(line):
    found = read_quickly(line)

    if found is not None:
        assert read(line) == found


@pytest.mark.parametrize(
    "line",
    [
        ["get", "plan"],
        ["--store", "s", "-v", "get", "plan", "--lines", "2-3", "--json"],
        ["list", "--sort=used", "--no-templates"],
        ["context", "--labels", "a,b"],
        ["status"],
        ["changes", "--unread", "--mark"],
    ],
)
def test_what_agents_ask_is_read_quickly(line):
    assert isinstance(read_quickly(line), Invocation)


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["--help"],
        ["--version"],
        ["--store"],
        ["append", "plan", "x"],
        ["gte", "plan"],
        ["get"],
        ["get", "a", "b"],
        ["get", "plan", "--lnes", "1"],
        ["get", "plan", "--tail"],
        ["get", "plan", "--tail", "x"],
        ["get", "plan", "--json=1"],
        ["get", "plan", "-q=1"],
        ["get", "plan", "--", "x"],
    ],
)
def test_everything_else_is_left_to_click(line):
    assert read_quickly(line) is None
