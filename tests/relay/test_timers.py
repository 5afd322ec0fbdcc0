"""relay.timers"""

from hypothesis import given, strategies as st

from relay.timers import Timers


def test_what_is_due_comes_once_and_in_order():
    timers: Timers[str] = Timers()
    timers.set("b", 2)
    timers.set("a", 1)
    timers.set("c", 3)

    assert timers.next_deadline() == 1
    assert list(timers.due(2)) == ["a", "b"]
    assert (list(timers.due(2)), timers.next_deadline()) == ([], 3)


def test_what_is_put_off_is_not_due_before():
    timers: Timers[str] = Timers()
    timers.set("a", 1)
    timers.set("a", 5)
    early = list(timers.due(4))

    assert (early, list(timers.due(5))) == ([], ["a"])
    assert timers.next_deadline() is None


def test_what_is_put_forward_is_due_once():
    timers: Timers[str] = Timers()
    timers.set("a", 5)
    timers.set("a", 1)

    assert (list(timers.due(1)), list(timers.due(9))) == (["a"], [])


def test_what_is_dropped_is_never_due():
    timers: Timers[str] = Timers()
    timers.set("a", 1)
    timers.drop("a")
    timers.drop("b")

    assert list(timers.due(9)) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 2))))
def test_it_is_a_table_of_moments(steps):
    timers: Timers[int] = Timers()
    table: dict[int, int] = {}
    now = 0
    for key, span, do in steps:
        if do == 0:
            table[key] = now + span
            timers.set(key, now + span)
        elif do == 1:
            table.pop(key, None)
            timers.drop(key)
        else:
            now += span
            due = {k for k, at in table.items() if at <= now}
            assert set(timers.due(now)) == due
            table = {k: at for k, at in table.items() if k not in due}
        deadline = timers.next_deadline()
        assert not table or (deadline is not None and deadline <= min(table.values()))
