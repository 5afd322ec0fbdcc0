"""crdtmem.cli.setup_json"""

import json

import pytest
from hypothesis import given, strategies as st

from crdtmem.cli.setup_edits import TakenError, UneditableError
from crdtmem.cli.setup_json import JsonEntry

SERVER = {"command": "/bin/crdtmem", "args": ["mcp"]}


def is_server(value):
    return isinstance(value, dict) and value.get("args") == ["mcp"]


def is_hook(value):
    return isinstance(value, dict) and str(value.get("command")).startswith("crdtmem")


ENTRY = JsonEntry(("mcpServers", "crdtmem"), SERVER, is_server)
START = JsonEntry(("hooks", "Start"), {"command": "crdtmem a"}, is_hook, True)
PROMPT = JsonEntry(("hooks", "Prompt"), {"command": "crdtmem b"}, is_hook, True)
VERSIONED = JsonEntry(
    ("hooks", "Start"), {"command": "crdtmem a"}, is_hook, True, (("version", 1),)
)
ALL = [ENTRY, START, PROMPT]


def written(value, random):
    """Write a value with any white space that JSON allows."""

    def gap():
        return random.choice(GAPS)

    def write(value):
        if isinstance(value, dict):
            parts = [
                f"{gap()}{json.dumps(k)}{gap()}:{gap()}{write(v)}{gap()}"
                for k, v in value.items()
            ]
            return f"{{{','.join(parts) or gap()}}}"
        if isinstance(value, list):
            parts = [f"{gap()}{write(v)}{gap()}" for v in value]
            return f"[{','.join(parts) or gap()}]"
        return json.dumps(value, ensure_ascii=random.choice([True, False]))

    return random.choice(["", "\ufeff"]) + gap() + write(value) + gap()


GAPS = ["", "", " ", "\n", "\n  ", "\r\n\t", "\t \n\n"]
VALUES: st.SearchStrategy[object] = st.sampled_from(
    [
        None,
        True,
        -1.5,
        "",
        'a"}],{[',
        "é\n\ud83d\ude00",
        [],
        {},
        [{}, [1, 2]],
        {"{": [{}]},
    ]
)
OBJECTS = st.dictionaries(st.sampled_from(["a", '"', "é"]), VALUES, max_size=2)
FILES = st.fixed_dictionaries(
    {"a": VALUES},
    optional={
        "mcpServers": OBJECTS,
        "hooks": st.fixed_dictionaries(
            {},
            optional={
                "Start": st.lists(VALUES, max_size=2),
                "Other": VALUES,
                "Prompt": st.lists(VALUES, max_size=2),
            },
        ),
        "z": VALUES,
    },
)


@st.composite
def files(draw):
    found = draw(FILES)
    random = draw(st.randoms(use_true_random=False))
    rows = list(found.items())[draw(st.integers(0, 1)) :]
    random.shuffle(rows)
    return written(dict(rows), random)


@given(files())
def test_what_is_put_in_is_taken_out_again_byte_for_byte(text):
    new = text
    for entry in ALL:
        new = entry.put(new)
    again = new
    for entry in ALL:
        again = entry.put(again)
    old = new
    for entry in reversed(ALL):
        old = entry.take(old)

    assert old == text
    assert again == new
    found = json.loads(new.removeprefix("\ufeff"))
    assert found["mcpServers"]["crdtmem"] == SERVER
    assert found["hooks"]["Start"][-1] == {"command": "crdtmem a"}
    assert found["hooks"]["Prompt"][-1] == {"command": "crdtmem b"}


@given(files())
def test_nothing_else_changes(text):
    before = json.loads(text.removeprefix("\ufeff"))
    after = json.loads(ENTRY.put(text).removeprefix("\ufeff"))

    assert after["mcpServers"].pop("crdtmem") == SERVER
    before.setdefault("mcpServers", {})
    assert after == before
    assert [k for k in after if k in before] == list(before)


@given(files())
def test_nothing_is_taken_out_where_nothing_of_ours_is(text):
    assert [entry.take(text) for entry in ALL] == [text] * len(ALL)


def test_a_file_is_made_and_nothing_is_left_of_it():
    text = ENTRY.put(None)

    assert json.loads(text) == {"mcpServers": {"crdtmem": SERVER}}
    assert text == f"{json.dumps(json.loads(text), indent=2)}\n"
    assert ENTRY.take(text) == ENTRY.empty == "{}\n"
    assert ENTRY.put(text) == text


def test_a_file_may_need_more_than_the_entry():
    text = VERSIONED.put(None)

    assert json.loads(text) == {
        "version": 1,
        "hooks": {"Start": [{"command": "crdtmem a"}]},
    }
    assert VERSIONED.take(text) == VERSIONED.empty
    assert START.take(START.put('{"version": 1}')) == '{"version": 1}'


def test_an_entry_is_written_as_the_ones_beside_it():
    text = '{\r\n\t"mcpServers": {\r\n\t\t"x": {"a": 1},\r\n\t\t"y": 2\r\n\t}\r\n}\r\n'

    assert ENTRY.put(text) == (
        '{\r\n\t"mcpServers": {\r\n\t\t"x": {"a": 1},\r\n\t\t"y": 2,\r\n'
        '\t\t"crdtmem": {\r\n\t\t\t"command": "/bin/crdtmem",\r\n'
        '\t\t\t"args": [\r\n\t\t\t\t"mcp"\r\n\t\t\t]\r\n\t\t}\r\n\t}\r\n}\r\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"crdtmem": {"args": ["mcp"]}}}',
        '{\n "mcpServers": {\n  "crdtmem": {\n   "args": ["mcp"]\n  }\n }\n}',
        '{\r\n "mcpServers": {\r\n  "crdtmem": {\r\n "args": ["mcp"]}\r\n }\r\n}',
    ],
)
def test_an_older_entry_of_ours_is_replaced_where_it_stands(text):
    new = ENTRY.put(text)

    assert json.loads(new) == {"mcpServers": {"crdtmem": SERVER}}
    assert ("\r\n" in new, "\n" in new) == ("\r\n" in text, "\n" in text)
    assert ENTRY.put(new) == new


def test_what_somebody_added_to_our_entry_stays():
    text = (
        '{"mcpServers": {"crdtmem": {"command": "/old", "args": ["mcp"], "env": {}}}}'
    )

    assert json.loads(ENTRY.put(text)) == {
        "mcpServers": {"crdtmem": {**SERVER, "env": {}}}
    }
    assert ENTRY.take(text) == '{"mcpServers": {}}'


def test_a_value_may_be_a_word():
    entry = JsonEntry(("folder",), "/new", lambda value: value in ("/old", "/new"))

    assert entry.put('{"folder": "/old"}') == '{"folder": "/new"}'
    assert entry.take(entry.put("{}")) == "{}"
    with pytest.raises(TakenError, match=r"^folder$"):
        entry.put('{"folder": "/theirs"}')


def test_what_others_put_behind_ours_stays():
    text = '{"mcpServers": { "crdtmem": {"args": ["mcp"]}, "b": 1 }}'

    assert ENTRY.take(text) == '{"mcpServers": { "b": 1 }}'


def test_every_entry_of_ours_in_an_array_is_taken_out():
    text = '{"hooks": {"Start": [{"command": "crdtmem a"}, 1, {"command": "crdtmem"}]}}'

    assert START.take(text) == '{"hooks": {"Start": [1]}}'


def test_a_foreign_entry_of_the_same_name_is_left_alone():
    text = '{"mcpServers": {"crdtmem": {"url": "x"}}}'

    with pytest.raises(TakenError, match=r"^mcpServers\.crdtmem$"):
        ENTRY.put(text)
    assert ENTRY.take(text) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is no JSON"),
        ('{"a": 1} // why', "it is no JSON"),
        ('{"a": 1,}', "it is no JSON"),
        ('{"a": NaN}', "NaN is no value"),
        ("[" * 100_000, "too deep"),
        ("[]", "it is no JSON object"),
        ('{"mcpServers": []}', "its 'mcpServers' is no object"),
        ('{"mcpServers": {}, "mcpServers": {}}', "it has 'mcpServers' twice"),
        ('{"mcpServers": {"crdtmem": 1, "crdtmem": 1}}', "it has 'crdtmem' twice"),
    ],
)
def test_what_cannot_be_edited_is_refused(text, reason):
    with pytest.raises(UneditableError, match=reason):
        ENTRY.put(text)


def test_an_array_belongs_where_elements_go():
    with pytest.raises(UneditableError, match="its 'Start' is no array"):
        START.put('{"hooks": {"Start": {}}}')


def test_the_snippet_is_the_whole_entry():
    assert json.loads(ENTRY.snippet) == {"mcpServers": {"crdtmem": SERVER}}
    assert json.loads(START.snippet) == {"hooks": {"Start": [START.value]}}
