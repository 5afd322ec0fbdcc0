"""crdtmem.doc.guard"""

import pytest
from pycrdt import Doc, Text

from crdtmem.doc.guard import doc_errors
from crdtmem.errors import DocError


def test_a_panic_of_pycrdt_is_a_doc_error():
    doc: Doc[Text] = Doc()
    doc["content"] = text = Text("🎉")
    with pytest.raises(DocError) as raised, doc_errors("delete too much"):
        del text[0:99]

    assert raised.value.message.startswith(
        "pycrdt panicked while it was to delete too much: Couldn't remove 99 elements"
    )
    assert not isinstance(raised.value.__cause__, Exception)


@pytest.mark.parametrize("error", [ValueError, TypeError, RuntimeError])
def test_what_pycrdt_raises_is_a_doc_error(error):
    with pytest.raises(DocError) as raised, doc_errors("squash"):
        raise error("no such struct")

    assert raised.value.message == "pycrdt could not squash: no such struct"
    assert isinstance(raised.value.__cause__, error)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, LookupError])
def test_what_is_not_of_pycrdt_passes(error):
    with pytest.raises(error) as raised, doc_errors("squash"):
        raise error("stop")

    assert raised.value.args == ("stop",)
