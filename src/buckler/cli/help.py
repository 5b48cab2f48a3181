"""Help of commands as plain text for 80 columns: options in groups, a narrow column of flags, defaults in words."""

from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from typer.core import TyperCommand

WIDEST_FLAG = 26
"""Columns of flags; what is longer has its text on the next line."""

VALUES = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
"""Type of an option's value -> how it is shown behind the flag."""


class Command(TyperCommand):
    """A command whose help is written here, and that refuses --quiet with --json."""

    function: Callable[..., None]

    def invoke(self, ctx: Any) -> Any:
        """Call the function, unless it is asked to print nothing and JSON."""
        if ctx.params.get("quiet") and ctx.params.get("as_json"):
            from buckler.errors import InvalidInput

            raise InvalidInput("--quiet prints nothing, and --json asks for something to be printed: give one of them")
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description, arguments, and the options group by group in the order of their declaration."""
        taken = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]
        usage = [f"{_argument(p)}{'...' if p.nargs == -1 else ''}" for p in taken]
        usage = [text if p.required else f"[{text}]" for text, p in zip(usage, taken, strict=True)]
        formatter.write_usage(ctx.command_path, " ".join(["[OPTIONS]", *usage]))
        describe(self.help or "", formatter)
        describe("Defaults are in [brackets].", formatter)
        types = get_type_hints(self.function)
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        parameters: list[Any] = self.get_params(ctx)
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                groups["Arguments"].append((_argument(parameter), _text(parameter)))
            else:
                panel = getattr(parameter, "rich_help_panel", None) or "Options"
                groups.setdefault(panel, []).append((_flags(parameter, types), _text(parameter)))
        for heading, rows in groups.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=WIDEST_FLAG)


def describe(text: str, formatter: Any) -> None:
    """Write paragraphs, wrapped; lines of a paragraph that begin with a space are kept, as commands in examples are."""
    for paragraph in text.strip().split("\n\n"):
        formatter.write_paragraph()
        with formatter.indentation():
            if paragraph.startswith(" "):
                formatter.write("".join(f"  {line}\n" for line in paragraph.splitlines()))
            else:
                formatter.write_text(" ".join(paragraph.split()))


def _argument(parameter: Any) -> str:
    return str(parameter.name).replace("_", "-").upper()


def _flags(parameter: Any, types: dict[str, Any]) -> str:
    names = sorted(parameter.opts, key=len)
    if parameter.secondary_opts:
        return f"--[no-]{names[-1].removeprefix('--')}"
    kinds: list[Any] = [types.get(str(parameter.name))]
    while kinds and kinds[0] not in VALUES:
        kind = kinds.pop(0)
        if isinstance(kind, UnionType) or get_origin(kind) is list:
            kinds += get_args(kind)
    return " ".join((", ".join(names), *(VALUES[kind] for kind in kinds[:1])))


def _text(parameter: Any) -> str:
    """Return the help of an option and, in brackets, its default."""
    shown, value = parameter.show_default, parameter.default
    if isinstance(shown, str):
        default = shown
    elif value is None or isinstance(value, bool):
        default = ""
    else:
        default = f"{value:g}" if isinstance(value, float) else str(value)
    if parameter.required and parameter.param_type_name == "option":
        default = "required"
    return f"{parameter.help} [{default}]" if default else str(parameter.help)
