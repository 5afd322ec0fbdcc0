"""Known bugs of the gateway for editors: text lost, doubled or glued."""

from tests.mutation import Mutation

__all__ = ["EDITOR_MUTATIONS"]

EDITOR_MUTATIONS = [
    Mutation(
        name="gateway-writes-under-a-large-id",
        path="crdtmem/store/editors.py",
        right="gid = 1 + secrets.randbelow(EDITOR_OWN_IDS_MAX - 1)",
        wrong="gid = (1 << 50) + secrets.randbelow(EDITOR_OWN_IDS_MAX - 1)",
        tests=("tests/service/test_gateway.py",),
    ),
    Mutation(
        name="fold-does-not-note-what-it-folded",
        path="crdtmem/store/editors.py",
        right="        n_folded=row.n,\n",
        wrong="        n_folded=row.n_folded,\n",
        tests=("tests/service/test_gateway.py",),
    ),
    Mutation(
        name="each-key-after-a-gap-counts-as-one",
        path="crdtmem/protocol/editors.py",
        right="        if self._is_asked:\n",
        wrong="        if self._is_asked and not self._gaps:\n",
        tests=("tests/protocol/test_editor_session.py",),
    ),
    Mutation(
        name="editor-of-another-document-is-answered-at-once",
        path="crdtmem/protocol/editors.py",
        right="        if is_safe or self._has_passed:\n",
        wrong="        if is_safe or not self._has_passed:\n",
        tests=("tests/protocol/test_editor_session.py", "tests/serve/test_rooms.py"),
    ),
    Mutation(
        name="fold-forgets-what-lanes-wrote-meanwhile",
        path="crdtmem/gateway.py",
        right="        if slot.file != row.text:\n",
        wrong="        if slot.file == row.text:\n",
        tests=("tests/service/test_gateway.py",),
    ),
]
