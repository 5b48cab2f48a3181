"""Settings of any command from a TOML file: a table for each command, a key for each of its options."""

from pathlib import Path
from typing import Any

from buckler.errors import InvalidInput, show
from buckler.runs.opening import read_settings


def defaults_from(path: Path, commands: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the defaults that a file gives to the options of each command, by parameter.

    ``[certify]`` with ``alpha = 0.01`` is ``certify --alpha 0.01`` unless the option is given; a list is what the
    command line separates by commas.
    """
    found: dict[str, dict[str, Any]] = {}
    for command, table in read_settings(path, "settings").items():
        if command not in commands or not isinstance(table, dict):
            raise InvalidInput(f"--settings must hold tables named like commands; got {show(command)}")
        options = {
            flag.removeprefix("--"): parameter
            for parameter in commands[command].params
            for flag in parameter.opts
            if flag.startswith("--")
        }
        found[command] = {}
        for key, value in table.items():
            option = options.get(key.replace("_", "-"))
            if option is None:
                raise InvalidInput(f"{command} has no option --{key.replace('_', '-')}, which {path} sets")
            found[command][option.name] = value if option.multiple else _joined(value)
    return found


def _joined(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value
