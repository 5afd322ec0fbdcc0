"""Names: labels, lanes, scopes, projects, and the slots that every store begins with.

Decides from values alone. Which folder a process stands in, what its repository says
and where its git directory lies is read by ``crdtmem.config`` and passed in here.

A slot is looked up by its label in a namespace: that of the project, whose name is the
project's id, or the one named ``global``. The *scope* says which of the two is meant.
"""

import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import LANE_BYTES

__all__ = [
    "GLOBAL_NAMESPACE",
    "LABEL_PATTERN",
    "PROJECT_ID_BYTES",
    "PROJECT_ID_PATTERN",
    "TEMPLATES",
    "ProjectIdentity",
    "ProjectSource",
    "Scope",
    "Template",
    "namespace_of",
    "new_project_id",
    "parse_label",
    "parse_lane",
    "parse_project_id",
    "parse_project_name",
    "parse_scope",
    "project_from",
    "project_id_of_path",
    "scope_of",
    "template_for",
]

Scope = Literal["project", "global"]
ProjectSource = Literal[
    "option", "environment", "project file", "user file", "git", "folder"
]

LABEL_PATTERN = r"[a-z][a-z0-9_]{0,63}"
"""What a whole label looks like: for ``re.fullmatch``, or for a JSON schema."""

PROJECT_ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""What a whole project id looks like: for ``re.fullmatch``."""

PROJECT_ID_BYTES = 16
"""Chance, or digest, behind a project id: enough that two never meet."""

GLOBAL_NAMESPACE = "global"

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE62_DIGITS = 22  # 62**22 is the first power of 62 above 2**128.
# Strings and not patterns, so that what a command does not use is not compiled.
_CONTROL = r"[\x00-\x1f\x7f-\x9f]"
_SURROGATE = r"[\ud800-\udfff]"


# Named tuples here: making a dataclass costs a twentieth of a bare start, and every
# command pays for it.
class Template(NamedTuple):
    """A slot that exists, empty, before anybody has written it.

    It is code and not a row: two replicas that both inserted default text would merge
    into two copies of it.
    """

    label: str
    scope: Scope
    size_limit: int
    pinned: bool
    description: str


_TEMPLATE_ROWS = (
    Template(
        "persona",
        "global",
        1000,
        pinned=True,
        description="Who the agent is here: role, voice, ground rules of behaviour.",
    ),
    Template(
        "user_preferences",
        "global",
        2000,
        pinned=True,
        description="What the user wants everywhere: code style, tools, names, habits.",
    ),
    Template(
        "tool_guidelines",
        "global",
        1500,
        pinned=True,
        description=(
            "Which tool to use when and in what order, and what to ask about first."
        ),
    ),
    Template(
        "project_context",
        "project",
        3000,
        pinned=True,
        description=(
            "How this project is made: decisions, conventions, commands, constraints."
        ),
    ),
    Template(
        "guidance",
        "project",
        1500,
        pinned=True,
        description=(
            "What the next session should aim for and stay clear of; open risks."
        ),
    ),
    Template(
        "pending_items",
        "project",
        2000,
        pinned=True,
        description="Work that was begun or promised and is not finished.",
    ),
    Template(
        "session_patterns",
        "project",
        1500,
        pinned=False,
        description="Habits and obstacles that keep coming back.",
    ),
    Template(
        "self_notes",
        "project",
        1500,
        pinned=False,
        description=(
            "The agent's scratch pad: guesses, dead ends, things to check again."
        ),
    ),
)

TEMPLATES: Mapping[tuple[Scope, str], Template] = MappingProxyType(
    {(row.scope, row.label): row for row in _TEMPLATE_ROWS}
)
"""Every template, by scope and label."""


class ProjectIdentity(NamedTuple):
    """Which project a handle works in, and how that was found out.

    Attributes:
        id: The namespace of the project's slots.
        source: What decided about the id.
        name: What people call the project; only ever shown.

    """

    id: str
    source: ProjectSource
    name: str


def parse_label(value: object) -> str:
    """Return the label that a caller gave, without the blanks around it.

    Raises:
        InvalidArgumentError: ``invalid-label`` if it is not a label.

    """
    if isinstance(value, str):
        label = value.strip()
        if re.fullmatch(LABEL_PATTERN, label):
            return label
    raise InvalidArgumentError(
        "label",
        "label required: a lower-case letter, then up to 63 of a-z, 0-9 and _, "
        f"not {_shown(value)}",
        code="invalid-label",
    )


def parse_scope(value: object, *, optional: bool) -> Scope | None:
    """Return the scope that a caller gave.

    Args:
        value: What the caller gave.
        optional: Whether None, which stands for "the one that has the label", passes.

    Raises:
        InvalidArgumentError: ``invalid-scope`` if it is not a scope.

    """
    if value is None and optional:
        return None
    if value == "project":
        return "project"
    if value == "global":
        return "global"
    raise InvalidArgumentError(
        "scope",
        f"scope must be 'project' or 'global', not {_shown(value)}",
        code="invalid-scope",
    )


def parse_lane(value: object, argument: str = "lane") -> str:
    """Return the name of a lane, without the blanks around it.

    Raises:
        InvalidArgumentError: ``invalid-lane`` unless it has 1 to 128 bytes of UTF-8
            and no control character.

    """
    return _parse_name(value, argument=argument, code="invalid-lane")


def parse_project_name(value: object) -> str:
    """Return what people call a project, without the blanks around it.

    Raises:
        InvalidArgumentError: Unless it has 1 to 128 bytes of UTF-8 and no control
            character.

    """
    return _parse_name(value, argument="name", code="invalid-argument")


def parse_project_id(value: object) -> str:
    """Return the id of a project.

    Raises:
        InvalidArgumentError: Unless it is an id, and not ``global``: the slots of a
            project of that name would be those of every project.

    """
    if not isinstance(value, str) or not re.fullmatch(PROJECT_ID_PATTERN, value):
        raise InvalidArgumentError(
            "project",
            "project must be an id: a letter or digit, then up to 63 of A-Z, a-z, 0-9, "
            f"'.', '_' and '-', not {_shown(value)}",
        )
    if value == GLOBAL_NAMESPACE:
        raise InvalidArgumentError(
            "project", "project must not be 'global', the name of the global scope"
        )
    return value


def namespace_of(scope: Scope, project: str) -> str:
    """Return the namespace that a scope means for a project."""
    return project if scope == "project" else GLOBAL_NAMESPACE


def scope_of(namespace: str) -> Scope:
    """Return the scope by which a namespace is reached."""
    return "global" if namespace == GLOBAL_NAMESPACE else "project"


def template_for(scope: Scope, label: str) -> Template | None:
    """Return the template of a label in a scope, or None."""
    return TEMPLATES.get((scope, label))


def new_project_id(random_bytes: bytes) -> str:
    """Return a project id made of 16 bytes of chance.

    Raises:
        ValueError: If there are more or fewer bytes.

    """
    if len(random_bytes) != PROJECT_ID_BYTES:
        raise ValueError(f"{len(random_bytes)} bytes are not {PROJECT_ID_BYTES}")
    number = int.from_bytes(random_bytes)
    digits = []
    for _ in range(_BASE62_DIGITS):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))


def project_id_of_path(path: str) -> str:
    """Return the project id that stands for a real path on this machine."""
    # A path of undecodable bytes holds lone surrogates, and still needs an id.
    digest = hashlib.sha256(path.encode("utf-8", "surrogatepass")).digest()
    return new_project_id(digest[:PROJECT_ID_BYTES])


def project_from(
    *,
    named: tuple[str, ProjectSource] | None,
    name: str | None,
    git_common_dir: str | None,
    folder: str,
) -> ProjectIdentity:
    """Decide which project a folder belongs to.

    An id that somebody gave wins. Else the git directory decides, which all worktrees
    of a repository share, and else the folder itself.

    Args:
        named: An id that was given, already parsed, and by what.
        name: What the project is called, already parsed, if somebody said so.
        git_common_dir: Real path of the git directory, None outside a repository.
        folder: Real path of the folder.

    """
    if named is not None:
        project_id, source = named
        return ProjectIdentity(project_id, source, name or project_id)
    if git_common_dir is not None:
        project_id = project_id_of_path(git_common_dir)
        found = _last_part(git_common_dir.removesuffix(".git"))
        return ProjectIdentity(project_id, "git", name or found or project_id)
    project_id = project_id_of_path(folder)
    return ProjectIdentity(
        project_id, "folder", name or _last_part(folder) or project_id
    )


def _parse_name(value: object, *, argument: str, code: str) -> str:
    if isinstance(value, str):
        name = value.strip()
        # Only what no surrogate is in can be encoded, so this order matters.
        if (
            name
            and not re.search(_CONTROL, name)
            and not re.search(_SURROGATE, name)
            and len(name.encode()) <= LANE_BYTES
        ):
            return name
    raise InvalidArgumentError(
        argument,
        f"{argument} must be 1 to {LANE_BYTES} bytes of UTF-8 without control "
        f"characters, not {_shown(value)}",
        code=code,
    )


def _last_part(path: str) -> str:
    """Return the last name in a path, made fit to be shown as a project's name."""
    part = re.split(r"[/\\]", path.rstrip("/\\"))[-1]
    part = re.sub(_SURROGATE, "?", re.sub(_CONTROL, "?", part)).strip()
    return part.encode()[:LANE_BYTES].decode(errors="ignore").strip()


def _shown(value: object) -> str:
    """Return a refused value as a message may hold it: short, on one line."""
    if not isinstance(value, str):
        return f"a value of type {type(value).__name__}"
    return repr(value) if len(value) <= LANE_BYTES else f"{len(value)} characters"
