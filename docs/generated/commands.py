"""Every verb of the command line with its arguments and options."""

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from depthbench.cli import app
from generated.markdown import code, prose, table, written

INTRO = """# Command line

`depthbench VERB --help` prints the same. Verbs with `--json` print one JSON document instead of a
table. `--set PATH=VALUE` of `plan` and `run` overrides any value of a suite, in YAML:
`--set seeds=[1,2]`, `--set budget.tokens=1e6`.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | a cell, a check or a reproduction failed |
| 2 | what was asked for cannot be done as it stands; nothing was written |
| 3 | the reports that were to be compared are not comparable; the fields that differ are named |
| 75 | a cell was interrupted and saved; the same command goes on |
"""


def page() -> str:
    """All verbs, sorted by name."""
    parts = [INTRO]
    for path, command in sorted(verbs(), key=lambda verb: verb[0]):
        name = " ".join(path)
        parts += [f"## {name} {{#{'-'.join(path)}}}\n", prose(command.help), ""]
        parts += [f"```\n{_usage(name, command)}\n```\n", _parameters(command)]
    return "\n".join(parts)


def verbs() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every verb's name, in parts, with its command."""
    return _verbs((), typer.main.get_command(app))


def _verbs(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    members = getattr(command, "commands", None)
    if members is None:
        yield path, command
    for name, member in (members or {}).items():
        yield from _verbs((*path, name), member)


def _usage(name: str, command: Any) -> str:
    words = ["depthbench", name]
    for parameter in command.params:
        if parameter.opts[0].startswith("-"):
            if parameter.required:
                words.append(f"{parameter.opts[0]} {_metavar(parameter)}")
        else:
            several = parameter.nargs == -1 and not parameter.metavar
            shown = _metavar(parameter) + ("..." if several else "")
            words.append(shown if parameter.required else f"[{shown}]")
    options = any(p.opts[0].startswith("-") and not p.required for p in command.params)
    return " ".join([*words, *(["[OPTIONS]"] if options else [])])


def _parameters(command: Any) -> str:
    if not command.params:
        return "Its arguments are passed on as they are.\n"
    hints = get_type_hints(command.callback)
    rows = []
    for p in command.params:
        flag = p.opts[0].startswith("-")
        shown = ", ".join([*p.opts, *p.secondary_opts]) if flag else _metavar(p)
        shown += f" {p.metavar}" if flag and p.metavar else ""
        again = (
            "several" if p.nargs == -1 else "can be repeated" if getattr(p, "multiple", 0) else ""
        )
        kind = _kind(hints[p.name]) + (f", {again}" if again else "")
        rows.append((code(shown), kind, _default(p), p.help))
    return table(("argument", "type", "default", "meaning"), rows)


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name).upper().replace("_", "-")


def _kind(hint: Any) -> str:
    """The type in words; what can be None or is repeated is what it holds."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(code, args))
    if origin in (Union, UnionType):
        return " or ".join(_kind(arg) for arg in args if arg is not type(None))
    if origin is list:
        return _kind(args[0])
    return {str: "text", int: "integer", float: "number", bool: "flag", Path: "path"}[hint]


def _default(parameter: Any) -> str | None:
    if parameter.required:
        return "required"
    if parameter.default is None or parameter.default is False:
        return None
    return code(written(parameter.default))
