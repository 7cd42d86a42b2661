"""Settings: frozen values that read from TOML and become flags of the command line."""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ganger.errors import ConfigError


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every group of settings.

    Give each setting a default and, below it, a docstring that says what changing it does: that is
    its help on the command line. A subclass is frozen and refuses unknown keys as this class does;
    keyword-only is not inherited, so one with a setting that has no default says kw_only=True.
    """


C = TypeVar("C", bound=Config)


def read_toml(path: str | Path, type: type[C]) -> C:
    """Read settings from a TOML file; what it leaves out keeps its default.

    Raises:
        ConfigError: if the file cannot be read, is not TOML, names a setting that does not exist or
            gives one a value of the wrong kind.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8; expected TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None
    try:
        _refuse_unknown(data, type, "")
        return msgspec.convert(data, type)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from None
    except ConfigError as error:  # also from a setting's own __post_init__
        raise ConfigError(f"{path}: {error}") from None


def _refuse_unknown(data: Mapping[str, Any], settings: type[Config], prefix: str) -> None:
    """msgspec would refuse as well, but not say which names exist."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(settings)}
    for name, value in data.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(fields)}"
            raise ConfigError(f"{prefix}{name} is not a setting; {hint}")
        nested = fields[name]
        if isinstance(value, dict) and isinstance(nested, type) and issubclass(nested, Config):
            _refuse_unknown(value, nested, f"{prefix}{name}.")
