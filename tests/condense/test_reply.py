"""crdtmem.condense.reply"""

import json

import pytest
from hypothesis import given, strategies as st

from crdtmem.condense.regions import parse, scan_fences
from crdtmem.condense.reply import ReplyError, clean_facts, clean_summary, parse_reply
from crdtmem.condense.values import CondenseReply
from crdtmem.doc.text_form import lines_of, units_of

PASS_ID = "cp_abcdefgh"
S = f"<<<crdtmem:summary {PASS_ID}>>>\n"
F = f"<<<crdtmem:facts {PASS_ID}>>>\n"
E = f"<<<crdtmem:end {PASS_ID}>>>\n"
FRAME = f"{S}sum\n{F}- fact\n{E}"

pytestmark = pytest.mark.requirement("condense-14")


def reply(summary="sum", *hoisted):
    return CondenseReply(pass_id=PASS_ID, summary=summary, hoisted=hoisted)


def refusal(text, of=parse_reply):
    with pytest.raises(ReplyError) as caught:
        of(text, PASS_ID)
    assert str(caught.value) == caught.value.detail
    return caught.value.reason, caught.value.detail


def reason_of(text):
    try:
        return "read" if parse_reply(text, PASS_ID).pass_id == PASS_ID else ""
    except ReplyError as exc:
        return exc.reason


def as_json(**values):
    return json.dumps({"passId": PASS_ID, "summary": "sum", **values})


@pytest.mark.parametrize(
    "text",
    [
        FRAME,
        FRAME.removesuffix("\n"),
        FRAME.replace("\n", "\r\n"),
        f"Here it is:\n\n{FRAME}\nI hope this helps.\n",
        f"```\n{FRAME}```\n",
        f"```markdown\n{FRAME}```\n",
        FRAME.replace(">>>", ">>>  \t"),
        FRAME.replace("<<<", "  <<<"),
        FRAME.replace("crdtmem:summary ", "crdtmem:summary\t "),
        # Markers of others are text, also in front and behind.
        f"<<<crdtmem:summary cp_x>>>\n{FRAME}<<<crdtmem:end cp_x>>>\n{FRAME[:0]}",
        as_json(facts=["fact"]),
        f"\n {as_json(facts=['fact'])} \n",
        f"```json\n{as_json(facts=['fact'])}\n```",
        f"```\n{as_json(facts=['fact'])}\n```\n",
        as_json(facts=["fact"], more=1),
    ],
)
def test_a_reply_in_its_frame_is_read(text):
    assert parse_reply(text, PASS_ID) == reply("sum", "fact")


def test_a_json_reply_may_have_no_facts():
    assert parse_reply(as_json(), PASS_ID) == reply()
    assert parse_reply(as_json(facts=[]), PASS_ID) == reply()


def test_a_summary_is_all_that_stands_in_the_frame():
    summary = "\n## a\n\n> <<<crdtmem:end x>>>\n<<<crdtmem:facts cp_other>>>\n"
    text = f"{S}{summary}{F}{E}"

    assert parse_reply(text, PASS_ID) == reply(summary.removesuffix("\n"))


@pytest.mark.parametrize("summary", ["", " \n\n"])
def test_a_reply_may_have_an_empty_summary(summary):
    # A gate refuses it later, with its own reason.
    assert parse_reply(f"{S}{summary}{F}{E}", PASS_ID).summary.strip() == ""
    assert parse_reply(as_json(summary=summary), PASS_ID) == reply(summary)


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        ("", []),
        ("\n \n", []),
        ("(none)\n", []),
        ("- (None)\n", []),
        ("none\n", []),
        ("- none\n", []),
        ("- one\n- two\n", ["one", "two"]),
        ("* one\n+ two\n• three\n-\tfour\n", ["one", "two", "three", "four"]),
        ("- one\n  goes on\n\tand on\n- two\n", ["one goes on and on", "two"]),
        ("  - one\n", ["one"]),
        ("one\ntwo\n", ["one", "two"]),
        ("- one\n\n  goes on\n", ["one goes on"]),
        ("```\n- one\n```\n", ["one"]),
        ("-one\n- - two\n", ["-one", "two"]),
        ("- none of them\n", ["none of them"]),
    ],
)
def test_a_fact_is_a_line_and_indented_lines_go_on_with_it(lines, facts):
    assert parse_reply(f"{S}sum\n{F}{lines}{E}", PASS_ID).hoisted == tuple(facts)


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("", "reply-empty", "the reply is empty"),
        (" \r\n\t\n", "reply-empty", "the reply is empty"),
        ("A summary.", "reply-unframed", "no markers"),
        (FRAME.replace("\n", " "), "reply-unframed", "no markers"),
        (FRAME.replace(">>>", ">>"), "reply-unframed", "no markers"),
        (FRAME.replace("<<<", "- <<<"), "reply-unframed", "no markers"),
        (FRAME.replace(PASS_ID, f"{PASS_ID} x"), "reply-unframed", "no markers"),
        (
            FRAME.replace("summary", "x").replace("facts", "y").replace("end", "z"),
            "reply-unframed",
            "no markers",
        ),
        (f"{F}- x\n{E}", "reply-unframed", "the marker summary is missing"),
        (f"{S}x\n{E}", "reply-unframed", "the marker facts is missing"),
        (E, "reply-unframed", "the marker summary is missing"),
        (f"{F}x\n", "reply-unframed", "the marker summary is missing"),
        (f"{F}x\n{S}x\n{E}", "reply-unframed", "another order"),
        (f"{E}{S}x\n{F}", "reply-unframed", "another order"),
        (f"{S}x\n{F}- y\n", "reply-truncated", "no end marker"),
        (f"{S}x\n", "reply-truncated", "no end marker"),
        (f"{S}x\n{FRAME}", "reply-duplicate-marker", "the marker summary"),
        (f"{FRAME}{F}", "reply-duplicate-marker", "the marker facts"),
        (f"{FRAME}{E}", "reply-duplicate-marker", "the marker end"),
        (FRAME.replace(PASS_ID, "cp_other"), "reply-wrong-pass", "'cp_other'"),
        (FRAME.replace(f" {PASS_ID}", ""), "reply-wrong-pass", "None"),
        (FRAME.replace(PASS_ID, PASS_ID[:-1]), "reply-wrong-pass", PASS_ID[:-1]),
        (FRAME.replace(PASS_ID, PASS_ID.upper()), "reply-wrong-pass", "CP_"),
        (as_json(passId="cp_other"), "reply-wrong-pass", "'cp_other'"),
        (as_json(passId=None), "reply-wrong-pass", "None"),
        (as_json(passId=7), "reply-wrong-pass", "7"),
        ('{"summary": "sum"}', "reply-wrong-pass", "None"),
        (as_json() + as_json(), "reply-unframed", "one JSON object"),
        (f"{as_json()}\n{as_json()}", "reply-unframed", "one JSON object"),
        (f"Here: {as_json()}", "reply-unframed", "one JSON object"),
        (f"[{as_json()}]", "reply-unframed", "one JSON object"),
        ('"sum"', "reply-unframed", "one JSON object"),
        (as_json(summary=None), "reply-unframed", "no summary"),
        (as_json(summary=["x"]), "reply-unframed", "no summary"),
        (as_json(facts="- x"), "reply-unframed", "facts that are no text"),
        (as_json(facts=["x", 1]), "reply-unframed", "facts that are no text"),
        (as_json(facts=None), "reply-unframed", "facts that are no text"),
        (f'{{"passId": "{PASS_ID}"}}', "reply-unframed", "no summary"),
        ("[" * 100_000, "reply-unframed", "one JSON object"),
        ('{"passId":' + "9" * 10_000 + "}", "reply-unframed", "one JSON object"),
        (
            FRAME.replace("sum\n", "s\udc00m\n"),
            "invalid-text",
            f"at character {len(S) + 1}",
        ),
        ("\ud800", "invalid-text", "at character 0"),
        (as_json(summary="\ud800"), "invalid-text", "at character 0"),
        (as_json(facts=["x", "a\udfff"]), "invalid-text", "at character 1"),
        (as_json(passId="\ud800"), "reply-wrong-pass", r"'\ud800'"),
    ],
)
def test_what_is_no_reply_of_the_pass_is_refused(text, reason, detail):
    found, sentence = refusal(text)

    assert found == reason
    assert detail in sentence


def test_a_foreign_pass_id_is_shown_cut():
    _, sentence = refusal(FRAME.replace(PASS_ID, "cp_" + "x" * 10_000))

    assert sentence == "the markers name the pass 'cp_" + "x" * 56


HOSTILE = [
    "```\n",
    "<<<crdtmem:summary ",
    f"<<<crdtmem:end {PASS_ID}>>>",
    ">>>",
    " ",
    "\n",
    "- ",
    "\\u0041",
    '{"passId":"',
    "#",
    "~~~ x\n",
    "é",
]


@given(st.lists(st.tuples(st.sampled_from(HOSTILE), st.integers(1, 4)), max_size=8))
def test_any_text_is_a_reply_or_refused(parts):
    text = "".join(part * count for part, count in parts)

    assert reason_of(text) == "read" or reason_of(text).startswith("reply-")


@pytest.mark.parametrize("part", HOSTILE)
def test_much_of_anything_is_read_in_linear_time(part):
    # Whatever is worse than linear does not end within the patience of the run.
    text = f"{S}x\n{F}" + part * (200_000 // len(part))

    assert refusal(text)[0] in {"reply-truncated", "reply-duplicate-marker"}
    assert refusal(text.removeprefix(S)[2:])[0].startswith("reply-")
    assert clean_summary(f"x{text}") != ""
    assert len(clean_facts([text, text], text[:1_000])) <= 1


@pytest.mark.parametrize(
    ("summary", "cleaned"),
    [
        ("", ""),
        (" \n\t\n", ""),
        ("x", "x"),
        ("\n\n  x\n\ny  \n\n", "  x\n\ny"),
        ("a\r\nb\r\n", "a\nb"),
        ("## x", "### x"),
        ("# x\n## y\n### z\n#### w", "### x\n### y\n### z\n#### w"),
        ("#\tx\n##\ty\n##", "###\tx\n###\ty\n###"),
        ("#x\n ## y\na ## b", "#x\n ## y\na ## b"),
        ("# # x", "### # x"),
        # Within a fence they are code.
        ("```\n## x\n```\n## y", "```\n## x\n```\n### y"),
        ("## a\n~~~\n# x", "### a\n~~~\n# x\n~~~"),
        ("````py\n```\n## x", "````py\n```\n## x\n````"),
        ("  ```\nx\n\n", "  ```\nx\n```"),
        ("```\nx\n```\n~~~~~", "```\nx\n```\n~~~~~\n~~~~~"),
        ("x\n```\n~~~\n## y\n~~~\n## z", "x\n```\n~~~\n## y\n~~~\n## z\n```"),
    ],
)
@pytest.mark.requirement("condense-15")
def test_a_summary_is_cleaned(summary, cleaned):
    assert clean_summary(summary) == cleaned


SUMMARIES = st.lists(
    st.sampled_from(
        ["# a\n", "## b\n", "```\n", "~~~~\n", "````x\n", "\n", "t\n", "\r"]
    )
).map("".join)


@pytest.mark.requirement("condense-15")
@given(SUMMARIES)
def test_a_cleaned_summary_stays_within_its_section(summary):
    cleaned = clean_summary(summary)
    assert clean_summary(cleaned) == cleaned
    assert scan_fences(lines_of(cleaned)).first_open is None

    file = f"## Condensed history\n{cleaned}\n## Recent\n"
    regions = parse(file, size_limit=100_000, unit_max=2_048)
    assert [region.kind for region in regions] == ["condensed", "divider"]
    # Nothing but headings has changed, and what closes a fence.
    before = summary.replace("\r\n", "\n").rstrip().split("\n")
    while len(before) > 1 and not before[0].strip():
        del before[0]
    *lines, last = [line.lstrip("#") for line in cleaned.split("\n")]
    texts = [line.lstrip("#") for line in before]
    assert texts in ([*lines, last], lines)


def test_a_summary_with_half_a_character_is_refused():
    reason, detail = refusal("ab\ud800", of=lambda text, _: clean_summary(text))

    assert (reason, detail) == (
        "invalid-text",
        "the reply holds a lone surrogate, at character 2",
    )


@pytest.mark.parametrize(
    ("facts", "pinned", "kept"),
    [
        ([], "", []),
        (["one", "two"], "", ["one", "two"]),
        (["", " ", "- ", "."], "", []),
        (["- one", "*  two", "• three", "+ four"], "", ["one", "two", "three", "four"]),
        (["  one \n two\t\tthree  "], "", ["one two three"]),
        (["one", "ONE.", "- one", "o n e"], "", ["one", "o n e"]),
        # Pinned already: up to case, bullets, blanks, composition, a full stop.
        (["One  Two."], "## Pinned facts\n* one two\n", []),
        (["one two"], "- ONE\ttwo.\r\n", []),
        (["cafe\u0301"], "- caf\u00e9", []),
        (["STRASSE"], "- straße", []),
        (["one."], "- one . \n", []),
        (["one"], "- one two\n- on\n", ["one"]),
        (["Pinned facts"], "## Pinned facts\n", ["Pinned facts"]),
        (["one.."], "- one\n", ["one.."]),
        (["-one", "## x"], "", ["-one", "## x"]),
    ],
)
@pytest.mark.requirement("condense-15")
def test_facts_are_lines_that_are_not_pinned_already(facts, pinned, kept):
    assert clean_facts(facts, pinned) == tuple(kept)


@pytest.mark.requirement("condense-15")
def test_a_long_fact_is_cut_between_characters():
    (fact,) = clean_facts(["x" * 499 + "🎉y"], "")

    assert fact == "x" * 499
    assert clean_facts(["x" * 499 + " y"], "") == ("x" * 499,)
    assert clean_facts(["x" * 500], "") == ("x" * 500,)
    # Equal as far as they are kept.
    assert len(clean_facts(["x" * 501, "x" * 502], "")) == 1


@given(st.lists(st.text("aA é\u0301-*\n.#🎉\u2028", max_size=8)), st.text("aA-. \n"))
def test_facts_are_short_lines_and_no_two_are_alike(facts, pinned):
    kept = clean_facts(facts, pinned)

    assert all("\n" not in fact and 0 < units_of(fact) <= 500 for fact in kept)
    assert clean_facts(kept, pinned) == kept
    assert clean_facts(facts, pinned + "\n" + "\n".join(kept)) == ()


def test_a_fact_with_half_a_character_is_refused():
    def clean(text, _):
        return clean_facts(["x", text], "")

    assert refusal("\udc80", of=clean)[0] == "invalid-text"
