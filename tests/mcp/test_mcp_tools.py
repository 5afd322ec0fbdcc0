"""crdtmem.mcp.tools: what each tool does, through the SDK's client, in both eras."""

import itertools

import pytest

from tests.mcp.agent import Refusal, texts_of

MARKER = "m4rk3r"


async def refused(agent, tool, **arguments):
    with pytest.raises(Refusal) as caught:
        await agent.call(tool, **arguments)
    return caught.value


async def test_a_slot_is_made_written_read_and_deleted(connect):
    async with connect() as agent:
        made = await agent.figures(
            "create", label="plan", content="one", sizeLimit="500", description="d"
        )
        added = await agent.figures("append", label="plan", text="two")
        head, text = await agent.read("get", label="plan")
        gone = await agent.figures("delete", label="plan", expectedRev=1)
        missing = await refused(agent, "get", label="plan")

    assert (made["rev"], made["sizeLimit"], added["rev"]) == (0, 500, 1)
    assert (head["rev"], head["description"], text) == (1, "d", "one\ntwo")
    assert "content" not in head
    assert gone["deleted"] is True
    assert missing.code == "slot-not-found"
    assert "hint: memory_slot_list" in missing.text


async def test_a_list_comes_in_pages_and_holds_no_text(connect, other):
    for number in range(103):
        other.create(f"s{number:03}", MARKER)
    async with connect() as agent:
        first = await agent.figures("list", scope="project")
        second = await agent.figures(
            "list", scope="project", cursor=first["nextCursor"]
        )
        wrong = await refused(agent, "list", cursor="No Label")

    labels = [slot["label"] for slot in first["slots"] + second["slots"]]
    assert len(first["slots"]) == 100
    assert "nextCursor" not in second
    assert labels == [slot.label for slot in other.slots("project")]
    assert MARKER not in str(first)
    assert wrong.code == "invalid-cursor"


@pytest.mark.requirement("surfaces-17")
@pytest.mark.parametrize(
    ("tool", "more", "times"),
    [
        ("get", {}, 1),
        ("get", {"blame": True}, 1),
        ("history", {"id": "ID"}, 1),
        ("history", {"id": "ID", "diff": True}, 1),
        ("changes", {"diff": True}, 1),
        ("search", {"query": "around"}, 1),
    ],
)
async def test_a_text_travels_once_and_in_no_structured_content(
    connect, other, tool, more, times
):
    other.create("plan", f"around {MARKER}")
    entry = other.slot("plan").append("more").history_id
    if tool == "changes":
        other.create("later")
    if tool == "history" and "diff" in more:
        entry = other.slot("plan").replace("around").history_id
    given = {name: entry if value == "ID" else value for name, value in more.items()}
    if tool in ("get", "history"):
        given["label"] = "plan"
    async with connect() as agent:
        result = await agent.call(tool, **given)

    wire = result.model_dump_json(by_alias=True)
    assert wire.count(MARKER) == times
    assert result.structured_content is None
    assert MARKER not in texts_of(result)[0]


@pytest.mark.requirement("surfaces-18")
async def test_no_structured_reply_holds_a_slots_text(connect, other):
    """Every reply is checked against its schema by the client."""
    async with connect() as agent:
        replies = [
            await agent.figures("create", label="plan", content=MARKER),
            await agent.figures("append", label="plan", text=MARKER),
            await agent.figures("edit", label="plan", insertAfterLine=0, text="x"),
            await agent.figures("edit", label="plan", pinned=False, sizeLimit=900),
            await agent.figures("replace", label="plan", content=f"{MARKER}\ny"),
            await agent.figures("delete", label="plan"),
            await agent.figures("list"),
            await agent.figures("status"),
        ]

    assert MARKER not in str(replies)
    assert not [reply for reply in replies if "content" in reply]


async def test_a_passage_is_edited_by_its_text_by_its_number_or_everywhere(connect):
    async with connect() as agent:
        await agent.call("create", label="plan", content="a b\na b\na b")
        many = await refused(
            agent, "edit", label="plan", oldText="a", newText="c", requestId="r"
        )
        await agent.call("edit", label="plan", oldText="a", newText="c", occurrence=2)
        second = await agent.text("plan")
        await agent.call("edit", label="plan", old_str="b", new_str="", all="true")
        everywhere = await agent.text("plan")

    assert (many.code, "occurrence" in many.text) == ("text-ambiguous", True)
    assert (second, everywhere) == ("a b\nc b\na b", "a \nc \na ")


async def test_lines_are_inserted_behind_a_line_of_the_text_that_was_read(
    connect, other
):
    async with connect() as agent:
        await agent.call("create", label="plan", content="one\ntwo")
        other.slot("plan").insert(0, "zero")
        unguarded = await refused(
            agent, "edit", label="plan", insertAfterLine=1, text="x"
        )
        await agent.call("edit", label="plan", insertAfterLine=1, text="x", baseRev=0)
        text = await agent.text("plan")

    assert unguarded.code == "invalid-precondition"
    assert text == "zero\none\nx\ntwo"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"oldText": "a", "newText": "b", "insertAfterLine": 0, "text": "x"},
        {"oldText": "a", "newText": "b", "pinned": True},
        {"text": "x", "pinned": True},
        {"oldText": "a"},
        {"newText": "a"},
        {"insertAfterLine": 0},
        {"text": "x"},
        {"oldText": "a", "newText": "b", "baseRev": 0},
        {"insertAfterLine": 0, "text": "x", "occurrence": 1},
        {"insertAfterLine": 0, "text": "x", "all": True},
        {"pinned": False, "expectedRev": 0},
    ],
)
async def test_an_edit_has_one_of_three_forms_and_nothing_else(connect, other, given):
    other.create("plan", "a")
    async with connect() as agent:
        error = await refused(agent, "edit", label="plan", **given)

    view = other.slot("plan").read()
    assert error.code in ("invalid-argument", "invalid-text")
    assert (view.rev, view.content, view.pinned) == (0, "a", True)


async def test_the_past_of_a_slot_is_listed_shown_and_compared(connect, other):
    other.create("plan", "one")
    other.slot("plan").append("two")
    other.slot("plan").undo()
    async with connect() as agent:
        head, listed = await agent.read("history", label="plan", limit=2)
        newest, oldest = listed.split("\n")
        entry = oldest.split()[0]
        shown, text = await agent.read("history", label="plan", id=entry)
        diff, unified = await agent.read("history", label="plan", id=entry, diff=True)
        no_id = await refused(agent, "history", label="plan", diff=True)

    assert (head["entries"], head["current"]["rev"]) == (2, 2)
    assert "undo by b" in newest
    assert "append by b undone by b; before: rev 0, 3 chars: one" in oldest
    assert (shown["operation"], text) == ("append", "one")
    assert (diff["fromRev"], diff["toRev"], unified) == (0, 2, "")
    assert no_id.code == "invalid-argument"


async def test_a_write_is_taken_back_and_what_others_wrote_stays(connect, other):
    async with connect() as agent:
        await agent.call("create", label="plan", content="one")
        await agent.call("append", label="plan", text="mine")
        other.slot("plan").append("theirs")
        would = await agent.figures("undo", label="plan", dryRun=True)
        before = await agent.text("plan")
        undone = await agent.call("undo", label="plan")
        after = await agent.text("plan")

    assert would["dryRun"] is True
    assert before == "one\nmine\ntheirs"
    assert after == "one\ntheirs"
    assert "-mine" in texts_of(undone)[1]
    assert undone.structured_content["diff"] == texts_of(undone)[1]


async def test_a_kept_text_is_written_again_under_a_guard(connect, other):
    other.create("plan", "one")
    entry = other.slot("plan").append("two").history_id
    async with connect() as agent:
        errors = [
            await refused(agent, "undo", label="plan", restore=True, expectedRev=1),
            await refused(agent, "undo", label="plan", restore=True, id=entry),
            await refused(
                agent, "undo", label="plan", restore=True, id=entry, dryRun=True
            ),
        ]
        restored = await agent.figures(
            "undo", label="plan", restore=True, id=entry, expectedRev=1
        )
        text = await agent.text("plan")

    assert [error.code for error in errors] == [
        "invalid-argument",
        "invalid-precondition",
        "invalid-argument",
    ]
    assert (restored["operation"], text) == ("restore", "one")


async def test_words_are_found_in_slots_and_in_the_past_of_one(connect, other):
    other.create("plan", "one\nthe Quick fox")
    other.slot("plan").replace("gone")
    other.create("notes", "quick notes")
    async with connect() as agent:
        now, text = await agent.read("search", q="quick")
        past, _ = await agent.read("search", q="quick", kind="history", label="plan")
        none, empty = await agent.read("search", query="absent")
        no_label = await refused(agent, "search", query="x", kind="archive")
        no_word = await refused(agent, "search", query=" - ")

    assert [hit["label"] for hit in now["hits"]] == ["notes"]
    assert text == "[1] notes:1\nquick notes"
    assert past["hits"][0]["historyId"]
    assert past["hits"][0]["line"] == 2
    assert (none["hits"], empty) == ([], "")
    assert (no_label.code, no_word.code) == ("invalid-label", "empty-query")


async def test_changes_are_told_with_their_authors_from_a_cursor_on(connect, other):
    other.create("plan", "one")
    async with connect() as agent:
        first, everything = await agent.read("changes")
        other.slot("plan").append("two")
        second, since = await agent.read("changes", since=first["cursor"], diff=True)
        _, nothing = await agent.read("changes", since=second["cursor"], limit=1)

    assert "plan rev 0→0 create by b" in everything
    assert since.startswith("plan rev 0→1 append by b")
    assert "+two" in since
    assert nothing == ""


async def test_diffs_of_changes_end_where_a_reply_is_long_enough(connect, other):
    lines = "\n".join(f"{number:099}" for number in range(100))
    other.create("old")
    for number in range(25):
        other.slot("old").append(str(number))
    for number in range(9):
        other.create(f"slot{number}", size_limit=100_000)
        other.slot(f"slot{number}").append(lines)
    async with connect() as agent:
        _, text = await agent.read("changes", diff=True)

    assert len(text) < 26_000
    assert text.count("[cut]") == 5
    assert "memory_slot_get slot8 shows the text" in text
    assert "the oldest kept rev is" in text


async def test_who_wrote_each_line_is_shown_with_it(connect, other):
    other.create("plan", "theirs")
    async with connect() as agent:
        await agent.call("append", label="plan", text="mine")
        head, text = await agent.read("get", label="plan", blame=True, lines="2")

    lane = agent.session.lane
    assert text.startswith(f"2 {lane} 20")
    assert text.endswith(" | mine")
    assert head["lines"] == {"from": 2, "to": 2, "total": 2}


async def test_headings_a_part_and_a_past_text_are_shown_on_request(connect, other):
    other.create("plan", "# A\none\n# B\ntwo")
    other.slot("plan").append("three")
    async with connect() as agent:
        _, outline = await agent.read("get", label="plan", outline=True)
        part, text = await agent.read("get", label="plan", lines="2-3")
        _, tail = await agent.read("get", label="plan", tail=2)
        past, old = await agent.read("get", label="plan", atRev=0)
        errors = [
            await refused(agent, "get", label="plan", tail=1, outline=True),
            await refused(agent, "get", label="plan", blame=True, atRev=0),
            await refused(agent, "get", label="plan", lines="x"),
        ]

    assert outline == "1: # A (7)\n3: # B (13)"
    assert (text, part["lines"]) == ("one\n# B", {"from": 2, "to": 3, "total": 5})
    assert tail == "two\nthree"
    assert (past["rev"], old) == (0, "# A\none\n# B\ntwo")
    assert {error.code for error in errors} == {"invalid-argument"}


@pytest.mark.requirement("surfaces-20")
@pytest.mark.parametrize("width", [61, 50_000])
async def test_the_pages_of_a_long_text_are_the_text(connect, other, width):
    """Two units for a character, so that a cut falls into one now and then."""
    emoji = "".join(itertools.islice(itertools.cycle("x\N{FOX FACE}yz"), 40_000))
    lines = [emoji[at : at + width] for at in range(0, len(emoji), width)]
    text = "\n".join(lines)
    other.create("plan", text, size_limit=100_000)
    pages = []
    more: dict[str, str] = {}
    async with connect() as agent:
        while True:
            head, page = await agent.read("get", label="plan", maxChars=2_001, **more)
            pages.append((head, page))
            if "truncated" not in head:
                break
            more = {"lines": head["nextLines"]}
        whole = await agent.call("replace", label="plan", content="rewritten")

    assert "".join(page for _, page in pages).encode() == text.encode()
    assert len(pages) >= 25
    assert pages[0][0]["outline"] == ["1: (no heading) (50,000)"] or width == 61
    assert not [head for head, _ in pages[1:] if "outline" in head]
    assert whole.structured_content["rev"] == 1


async def test_a_reply_says_how_the_memory_stands(connect, other):
    async with connect() as agent:
        status = await agent.figures("status")

    assert status["ready"] is True
    assert status["lane"] == agent.session.lane
    assert status["store"]["project"] == "p"
