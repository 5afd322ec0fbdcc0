"""What the processes of the gateway's tests do: they type, append, fold and follow."""

from typing import TYPE_CHECKING

from tests.scenarios import opened
from tests.serve.editing import Editor

if TYPE_CHECKING:
    from tests.child import Link

__all__ = ["type_in_rounds"]


def type_in_rounds(
    link: "Link", *, path: str, lane: str, client: int, count: int
) -> None:
    """Type lines as an editor and append lines as a lane; fold and follow in between.

    Args:
        link: Gets ``kept`` with a line after the call that took it has returned.
        path: The store.
        lane: What each line begins with.
        client: The editor's id.
        count: How many rounds.

    """
    with opened(path, lane) as memory:
        editing = memory.editing("plan", "project")
        editor = Editor(editing, client, f"yjs:{lane}")
        for number in range(count):
            editor.type(f"{lane} typed {number}\n")
            assert editor.send().n is not None
            link.report("kept", line=f"{lane} typed {number}")
            memory.slot("plan").append(f"{lane} appended {number}")
            link.report("kept", line=f"{lane} appended {number}")
            if number % 2:
                editing.fold()
                editor.catch_up()
            else:
                editing.fold()
                memory.slot("plan").append(f"{lane} followed {number}")
                link.report("kept", line=f"{lane} followed {number}")
                editing.follow()
                editor.catch_up()
