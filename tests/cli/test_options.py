"""crdtmem.cli.options"""

import importlib
import inspect
import re
from typing import get_type_hints

import click
import pytest

from crdtmem.cli.commands import COMMANDS
from crdtmem.cli.options import GLOBAL_OPTIONS
from crdtmem.cli.tree import crdtmem

NAMES = list(COMMANDS)


def function_of(command):
    module = importlib.import_module(f"crdtmem.cli.{command.module}")
    return getattr(module, command.function)


def parameters_of(function):
    """Return the parameters a function must be given, and those it may be given."""
    parameters = inspect.signature(function).parameters.values()
    needed = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    optional = {p.name for p in parameters if p.default is not p.empty}
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            given = get_type_hints(function)[parameter.name].__args__[0]
            optional |= set(given.__annotations__)
    return needed - optional, optional


def words_of(command):
    needed = {a.parameter for a in command.arguments}
    needed |= {o.parameter for o in command.options if not o.is_left_out}
    return needed, {o.parameter for o in command.options if o.is_left_out}


@pytest.mark.parametrize("name", NAMES)
def test_a_command_takes_what_the_table_says(name):
    assert parameters_of(function_of(COMMANDS[name])) == words_of(COMMANDS[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_command_has_at_most_25_lines(name):
    function = function_of(COMMANDS[name])
    source = inspect.getsource(function).split('"""')[-1]

    assert source.count("\n") <= 26


@pytest.mark.requirement("surfaces-1")
@pytest.mark.parametrize("name", NAMES)
def test_the_tree_and_the_table_are_equal(name):
    command = COMMANDS[name]
    built = crdtmem.get_command(click.Context(crdtmem), name)

    assert built is not None
    assert built.short_help == command.help
    assert {
        (param.name, *sorted((*param.opts, *param.secondary_opts)))
        for param in built.params
        if isinstance(param, click.Option)
    } == {
        (option.parameter, *sorted((*option.names, *option.off)))
        for option in (*command.options, *GLOBAL_OPTIONS)
    }
    assert [p.name for p in built.params if isinstance(p, click.Argument)] == [
        argument.parameter for argument in command.arguments
    ]


def test_the_tree_lists_every_command_of_the_table():
    assert crdtmem.list_commands(click.Context(crdtmem)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_everything_has_a_line_of_help(name):
    command = COMMANDS[name]
    lines = [command.help, *(o.help for o in (*command.options, *GLOBAL_OPTIONS))]

    assert [line for line in lines if not re.match(r"[A-Za-z]", line)] == []
    assert not command.help.endswith(".")


def test_no_option_of_a_command_hides_a_global_one():
    common = {name for option in GLOBAL_OPTIONS for name in option.names}

    assert [
        (command.name, name)
        for command in COMMANDS.values()
        for option in command.options
        for name in (*option.names, *option.off)
        if name in common
    ] == []
