"""Five sources, one ``Config``."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from crdtmem.config.keys import BY_NAME, KEYS, Secret
from crdtmem.config.places import (
    ProjectPlace,
    default_lane,
    find_project,
    process_environment,
    user_config_path,
    user_folder,
)
from crdtmem.config.sources import (
    Source,
    Values,
    from_environment,
    from_options,
    from_project_file,
    from_user_file,
    project_folder,
)
from crdtmem.errors import ConfigError
from crdtmem.scope import ProjectIdentity, ProjectSource, Scope, project_from

__all__ = ["Config", "describe", "load_config"]


class Config(NamedTuple):
    """Every setting, and where each came from.

    Attributes:
        store: The store's file.
        project: The project, with the source of its id.
        scope: The scope that commands mean where none is given.
        context_budget: Tokens that a context may take.
        context_labels: The slots of a context; None: those that are pinned.
        lane: Name of this session.
        busy_timeout: Seconds to wait for the write lock.
        history_keep: Past texts that a new store keeps for each slot.
        durability: Whether a write is on disk when it returns (``full``).
        relay_url: The relay that a link goes to where none is named.
        relay_token_file: File with the token for it.
        relay_token: The token itself, from the environment.
        relay_keyring_file: File with the keys of encrypted namespaces.
        relay_keyring: The keys themselves, from the environment.
        mirror_dir: The folder that is mirrored where none is named.
        condense_trigger_pct: This and the next: knobs of ``CondenseConfig``, see there.
        condense_section_trigger: See there.
        condense_min_size: See there.
        condense_keep_sections: See there.
        condense_keep_pct: See there.
        condense_pinned_max_pct: See there.
        condense_not_smaller: See there.
        condense_expires_in: See there.
        condense_archive_max_bytes: See there.
        color: Whether output is coloured; ``auto``: on a terminal.
        log_file: Where to log; None: nowhere.
        project_folder: Where the project's file is, or would be.
        project_file: The project's file, if there is one.
        user_file: The user's file, whether or not there is one.
        sources: The source of each key, by its name.

    """

    store: Path
    project: ProjectIdentity
    scope: Scope
    context_budget: int
    context_labels: tuple[str, ...] | None
    lane: str
    busy_timeout: float
    history_keep: int
    durability: Literal["full", "normal"]
    relay_url: str | None
    relay_token_file: Path | None
    relay_token: Secret | None
    relay_keyring_file: Path | None
    relay_keyring: Secret | None
    mirror_dir: Path | None
    condense_trigger_pct: int
    condense_section_trigger: int
    condense_min_size: int | None
    condense_keep_sections: int
    condense_keep_pct: int
    condense_pinned_max_pct: int
    condense_not_smaller: float
    condense_expires_in: float
    condense_archive_max_bytes: int | None
    color: Literal["auto", "always", "never"]
    log_file: Path | None
    project_folder: Path
    project_file: Path | None
    user_file: Path
    sources: Mapping[str, Source]

    def condense_knobs(self) -> dict[str, Any]:
        """Return the arguments of ``CondenseConfig`` that the settings come to."""
        mark = "condense_"
        return {
            field.removeprefix(mark): value
            for field, value in self._asdict().items()
            if field.startswith(mark)
        }


def load_config(
    *,
    options: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    user_file: str | os.PathLike[str] | None = None,
) -> Config:
    """Read every setting there is; write nothing.

    Args:
        options: What the caller was given, by field of ``Config``; None is not given.
            ``project`` is an id or, as a path object, a folder to resolve from.
        environ: None: the environment of this process.
        cwd: The folder to work from; None: that of this process.
        user_file: The user's settings file; None: where it belongs.

    Raises:
        InvalidArgumentError: If an option has a wrong type or range.
        ConfigError: ``config-unknown-key`` or ``config-invalid``, naming the place.
        UntrustedConfigError: If the project's file sets what only the user may.

    """
    options = options or {}
    environ = process_environment() if environ is None else environ
    folder = _working_folder(cwd)
    user_path = Path(user_config_path(environ) if user_file is None else user_file)
    place = find_project(project_folder(options, environ, folder=folder))
    values: Values = {key.name: (key.default, "default") for key in KEYS}
    values |= from_user_file(os.fspath(user_path), environ)
    if place.file is not None:
        values |= from_project_file(place.file)
    values |= from_environment(environ, folder=folder)
    values |= from_options(options, environ, folder=folder)
    _settle_color(values, environ)
    _fill_in(values, environ)
    return _config(values, place=place, user_file=user_path)


def describe(config: Config) -> list[tuple[str, object, str]]:
    """Return name, value and source of each setting, values as JSON types.

    A secret is only told to be there.
    """
    rows: list[tuple[str, object, str]] = []
    for key in KEYS:
        if key.name == "project.id":
            rows.append((key.name, config.project.id, config.project.source))
            continue
        # The project's two keys are one field; every other key has its own.
        is_name = key.name == "project.name"
        value: object = config.project.name if is_name else getattr(config, key.field)
        if isinstance(value, Path):
            value = os.fspath(value)
        elif isinstance(value, Secret):
            value = repr(value)
        elif isinstance(value, tuple):
            value = list(value)
        rows.append((key.name, value, config.sources[key.name]))
    return rows


def _working_folder(cwd: str | os.PathLike[str] | None) -> str:
    try:
        return os.getcwd() if cwd is None else os.path.abspath(cwd)
    except FileNotFoundError as exc:
        raise ConfigError(
            "the current folder no longer exists",
            code="config-invalid",
            hint="change to another folder",
        ) from exc


def _settle_color(values: Values, environ: Mapping[str, str]) -> None:
    """Let the variables that all programs share decide, unless an option did."""
    color, source = values["color"]
    if source == "option":
        return
    if environ.get("NO_COLOR"):
        values["color"] = "never", "environment"
    elif environ.get("FORCE_COLOR"):
        values["color"] = "always", "environment"
    elif color == "auto" and environ.get("TERM") == "dumb":
        values["color"] = "never", "environment"


def _fill_in(values: Values, environ: Mapping[str, str]) -> None:
    """Work out the defaults that depend on user and machine, if they are needed."""
    if values["store"][0] is None:
        folder = user_folder("data", environ)
        values["store"] = Path(folder, "store.db"), "default"
    if values["lane"][0] is None:
        values["lane"] = default_lane(environ), "default"


def _config(values: Values, *, place: ProjectPlace, user_file: Path) -> Config:
    # The table's parse functions, and nothing else, say what type a field has.
    fields: dict[str, Any] = {
        BY_NAME[name].field: value
        for name, (value, _) in values.items()
        if not name.startswith("project.")
    }
    identity, name_source = _project(values, place)
    sources = {name: source for name, (_, source) in values.items()}
    return Config(
        **fields,
        project=identity,
        project_folder=Path(place.folder),
        project_file=None if place.file is None else Path(place.file),
        user_file=user_file,
        sources=MappingProxyType({**sources, "project.name": name_source}),
    )


def _project(values: Values, place: ProjectPlace) -> tuple[ProjectIdentity, Source]:
    project_id, source = values["project.id"]
    name, name_source = values["project.name"]
    named: tuple[str, ProjectSource] | None = None
    if source != "default":
        named = str(project_id), source
    if source in ("option", "environment") and name_source != source:
        # The file at hand names the project that lies here, which is another one.
        name, name_source = None, "default"
    identity = project_from(
        named=named,
        name=None if name is None else str(name),
        git_common_dir=place.git_common_dir,
        folder=place.folder,
    )
    return identity, name_source
