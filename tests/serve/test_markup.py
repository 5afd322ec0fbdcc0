"""Tests of the one way in which anything gets onto a page."""

import pytest

from crdtmem.serve.markup import Markup, address, document, h

HOSTILE = """"><script>alert(1)</script>&'"""


def test_a_text_is_always_escaped():
    made = str(h("p", {"title": HOSTILE}, HOSTILE, [HOSTILE, [7, None]]))

    assert "<script" not in made
    assert made.count("&lt;script&gt;") == 3
    assert made.startswith('<p title="&quot;&gt;')
    assert made.endswith("7</p>")


def test_nothing_turns_a_text_into_markup():
    with pytest.raises(TypeError):
        Markup(*["<b>"])
    assert not Markup()
    assert str(h("b", None, Markup(), str(h("i")))) == "<b>&lt;i&gt;&lt;/i&gt;</b>"
    assert h("b")


def test_an_attribute_may_be_there_or_not():
    made = h("input", {"checked": True, "disabled": False, "value": None, "max": 3})

    assert str(made) == '<input checked max="3">'


@pytest.mark.parametrize(
    ("tag", "attributes", "children"),
    [
        ("script", None, ["alert(1)"]),
        ("style", None, ["*{}"]),
        ("p onclick", None, []),
        ("p", {"onclick": "x"}, []),
        ("p", {"style": "x"}, []),
        ("p", {"a b": "x"}, []),
        ("iframe", {"srcdoc": "x"}, []),
        ("a", {"href": "javascript:alert(1)"}, []),
        ("a", {"href": "https://elsewhere.example/"}, []),
        ("a", {"href": "//elsewhere.example/"}, []),
        ("a", {"href": "/\\elsewhere.example/"}, []),
        ("form", {"action": "elsewhere"}, []),
        ("br", None, ["x"]),
    ],
)
def test_what_would_be_a_script_or_lead_elsewhere_is_refused(tag, attributes, children):
    with pytest.raises(ValueError, match=r"page|elsewhere|holds nothing"):
        h(tag, attributes, *children)


def test_an_address_holds_any_text():
    assert address("p", "a/b", "..é") == "/p/a%2Fb/..%C3%A9"
    assert address("x", from_=1, q="a&b", none=None) == "/x?from=1&q=a%26b"
    assert str(h("a", {"href": address("x")})) == '<a href="/x"></a>'


def test_a_document_is_a_whole_page():
    made = str(document({"lang": "en"}, h("title", None, "<"), h("body")))

    assert made == (
        '<!doctype html>\n<html lang="en"><head><title>&lt;</title></head>'
        "<body></body></html>"
    )
