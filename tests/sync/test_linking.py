"""crdtmem.sync.linking"""

import hashlib

import pytest

from crdtmem.errors import (
    InsecureUrlError,
    InvalidArgumentError,
    LinkExistsError,
    LinkOverlapError,
    LinkRefusedError,
    PermissionDeniedError,
    RelayRefusedError,
    SlotExistsError,
)
from crdtmem.store.links import add_link, links_of
from crdtmem.sync import linking
from crdtmem.sync.linking import LinkRequest, default_remote, link_namespace
from crdtmem.sync.once import sync_once
from tests.relay.live import PATIENCE_S
from tests.sync.relays import RunningRelay, in_thread
from tests.sync.sites import PROJECT


@pytest.fixture(scope="module")
def running():
    relay = RunningRelay()
    yield relay
    relay.stop()


@pytest.fixture
def request_(running, request):
    """What is linked, unless a test says otherwise."""
    name = request.node.name.split("[")[0].replace("_", "-")[:60]
    return LinkRequest(PROJECT, name, running.url, None, running.token)


@pytest.fixture
def link(request_):
    def link(site, on_overlap="refuse", **changes):
        return in_thread(
            link_namespace,
            site.store,
            request_._replace(**changes),
            lane="ann",
            on_overlap=on_overlap,
            timeout_s=PATIENCE_S,
        )

    return link


@pytest.fixture
def ann(site):
    return site("ann", is_linked=False)


@pytest.fixture
def bob(site, link, running):
    """A machine that is linked and synced: one slot of its own."""
    made = site("bob", is_linked=False)
    made.append("plan", "of bob")
    link(made)
    once(made, running)
    return made


def once(site, running):
    in_thread(sync_once, site.store, token=running.token, timeout_s=PATIENCE_S)


def test_clones_of_a_project_meet_at_the_same_name():
    digest = hashlib.sha256(b"crdtmem/1/ns\0demo").hexdigest()

    assert default_remote("demo") == f"p-{digest[:32]}"


def test_the_global_namespace_has_no_name_by_itself():
    with pytest.raises(InvalidArgumentError, match="no name at a relay") as refusal:
        default_remote("global")

    assert "--namespace" in refusal.value.hint


def test_a_store_that_fits_is_linked_and_not_yet_changed(ann, bob, link, running):
    ann.append("todo", "of ann")

    assert link(ann) == []

    (made,) = links_of(ann.store)
    assert (made.namespace, made.url, made.token_file) == (PROJECT, running.url, "")
    assert ann.text("todo") == "of ann"
    once(ann, running)
    assert ann.text("plan") == "of bob"


def test_texts_that_came_about_apart_refuse_the_link(ann, bob, link):
    ann.append("plan", "of ann")

    with pytest.raises(LinkOverlapError, match="plan") as refusal:
        link(ann)

    assert refusal.value.details["labels"] == ["plan"]
    assert links_of(ann.store) == []
    assert ann.text("plan") == "of ann"


def test_texts_that_came_about_apart_may_be_merged(ann, bob, link, running):
    ann.append("plan", "of ann")

    link(ann, "merge")

    once(ann, running)
    assert sorted(ann.text("plan").split("\n")) == ["of ann", "of bob"]


def test_the_local_slot_may_move_out_of_the_way(ann, bob, link, running):
    ann.append("plan", "of ann")

    assert link(ann, "rename") == [("plan", "plan_local")]

    once(ann, running)
    assert ann.text("plan") == "of bob"
    assert ann.text("plan_local") == "of ann"


def test_a_slot_cannot_move_to_where_there_is_one(ann, bob, link, running):
    bob.append("plan_local", "taken")
    once(bob, running)
    ann.append("plan", "of ann")

    with pytest.raises(SlotExistsError, match="plan_local"):
        link(ann, "rename")

    assert links_of(ann.store) == []
    assert ann.text("plan") == "of ann"


def test_a_label_that_is_too_long_to_move_changes_nothing(ann, site, link, running):
    other = site("other", is_linked=False)
    label = "a" * 60
    for each in (ann, other):
        each.append(label, each.name)
    link(other)
    once(other, running)

    with pytest.raises(InvalidArgumentError, match="label"):
        link(ann, "rename")

    assert links_of(ann.store) == []


def test_slots_that_were_synced_before_overlap_no_more(ann, bob, link, running):
    link(ann)
    once(ann, running)
    ann.append("plan", "of ann")
    once(ann, running)
    ann.unlink()

    assert link(ann) == []


def test_slots_without_text_overlap_with_nothing(ann, bob, link):
    ann.memory.create("plan")

    assert link(ann) == []


@pytest.mark.parametrize("name", ["", "Team", "a/b", "x" * 65, "-a"])
def test_a_name_that_is_none_is_refused(ann, link, name):
    with pytest.raises(InvalidArgumentError, match="namespace must be"):
        link(ann, remote=name)


def test_a_token_is_not_sent_in_the_clear(ann, link):
    with pytest.raises(InsecureUrlError):
        link(ann, url="ws://relay.example")


def test_a_link_needs_a_token(ann, link, tmp_path):
    with pytest.raises(InvalidArgumentError, match="no token") as refusal:
        link(ann, token=None)

    assert "relay.token_file" in refusal.value.hint
    file = tmp_path / "token"
    file.write_text("cm1_x", encoding="utf-8")
    file.chmod(0o644)
    with pytest.raises(PermissionDeniedError):
        link(ann, token_file=file)


def test_the_token_may_lie_in_a_file(ann, link, running, tmp_path):
    file = tmp_path / "token"
    file.write_text(running.token, encoding="utf-8")
    file.chmod(0o600)

    link(ann, token_file=file, token=None)

    assert links_of(ann.store)[0].token_file == str(file)


def test_what_the_relay_refuses_is_not_linked(ann, link):
    with pytest.raises(RelayRefusedError):
        link(ann, token="cm1_wrong")

    assert links_of(ann.store) == []


def test_each_side_is_linked_once(ann, bob, link, running):
    with pytest.raises(LinkExistsError, match=f"'{PROJECT}' is linked to"):
        link(bob, remote="elsewhere")
    with pytest.raises(LinkExistsError, match=f"'{PROJECT}' is linked to"):
        link(bob, local="global")


def test_a_store_has_so_many_links_and_no_more(ann, link, monkeypatch):
    monkeypatch.setattr(linking, "JOINS_MAX", 1)
    add_link(
        ann.store,
        namespace="global",
        remote="me",
        url="wss://x",
        token_file="",
        options={},
    )

    with pytest.raises(LinkRefusedError, match="1 namespaces are linked") as refusal:
        link(ann)

    assert "unlink" in refusal.value.hint
