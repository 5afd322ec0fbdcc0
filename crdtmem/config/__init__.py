"""Settings: read once, at the edge, into one frozen ``Config``.

An option wins over the environment, that over the project's ``.crdtmem.toml``, that
over the user's ``config.toml``, and that over the default. A project's file comes with
its repository, so from anybody: it may name the project and shape what is shown, and
everything else in it is refused.

Below the front ends nothing asks for settings: it is told. This package alone reads
the environment. It loads no pydantic, no platformdirs on Linux and no TOML reader where
there is no file, because the commands that agents run at every turn go through here.

``keys`` is the table of settings, ``places`` says where things lie, ``files`` reads a
settings file, ``statements`` finds the lines of one, ``editing`` changes them.
"""

from crdtmem.config.places import user_config_path
from crdtmem.config.settings import Config, describe, load_config

__all__ = ["Config", "describe", "load_config", "user_config_path"]
