"""Reading what users write: YAML without its traps, and one sentence for each problem found."""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from depthbench.errors import InputError

M = TypeVar("M", bound=BaseModel)
_LONGEST_VALUE = 80


class _Loader(yaml.SafeLoader):
    """YAML whose keys are unique and whose `1e-3` is a number, as in YAML 1.2."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: list[Any] = []  # a list, since a key may be unhashable until super() refuses it
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} stands twice", key_node.start_mark
                )
            seen.append(key)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse_yaml(text: str, where: str) -> Any:
    """The value that `text` writes. Raises `InputError` naming `where`, line and column."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{where}{place}: {getattr(error, 'problem', error)}") from None


def read_yaml(path: Path) -> Any:
    """The value in the file at `path`. Raises `InputError` when it is missing or not YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    return parse_yaml(text, str(path))


def validated(model: type[M], data: object, where: str) -> M:
    """`data` as a `model`. Raises `InputError` with one line per problem: path, value, remedy."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = [f"{where}: {line}" for line in _problems(model, error)]
        raise InputError("\n".join(lines)) from None


def _problems(model: type[BaseModel], error: ValidationError) -> Iterator[str]:
    problems = error.errors()
    for problem in problems:
        path, value = ".".join(map(str, problem["loc"])), _shortened(problem["input"])
        if problem["type"] == "extra_forbidden":
            from residuals.errors import unknown  # imports torch: only once something is wrong

            known = _fields_at(model, problem["loc"][:-1])
            sentence = unknown("key", str(problem["loc"][-1]), known)
            yield f"{path} = {value}: {sentence} Known keys: {', '.join(known)}."
        elif problem["type"] == "missing":
            yield f"{path} is missing"
        elif problem["type"] == "value_error":
            message = str(problem["ctx"]["error"])
            yield f"{path}: {message}" if path else message
        elif not _follows(problem, problems):
            yield f"{path} = {value}: {problem['msg']}"


def _follows(problem: ErrorDetails, problems: Sequence[ErrorDetails]) -> bool:
    """Whether the problem is only that another one, inside it or before it, left a gap."""
    loc = problem["loc"]
    inside = any(len(p["loc"]) > len(loc) and p["loc"][: len(loc)] == loc for p in problems)
    return problem["type"] == "default_factory_not_called" or (
        problem["type"] == "too_short" and inside
    )


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> Mapping[str, FieldInfo]:
    """Fields of the model that `path` leads to: by field, or by a union's tag."""
    models = [model]
    for part in path:
        fields = [m.model_fields[part] for m in models if part in m.model_fields]
        if fields:
            models = list(_models_in(fields[0].annotation)) or models
        else:
            tagged = [m for m in models if part in (f.default for f in m.model_fields.values())]
            models = tagged or models
    return models[0].model_fields


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def overridden(
    document: Mapping[str, Any], overrides: Sequence[str], option: str = "--set"
) -> dict[str, Any]:
    """`document` with each `path=value` set: `a.b.0=value`, where the value is YAML.

    `option` is what the user has typed before each.
    """
    copy = deepcopy(dict(document))
    for override in overrides:
        _override(copy, override, option)
    return copy


def _override(document: dict[str, Any], override: str, option: str) -> None:
    """Sets `a.b.0=value` in place; missing mappings on the way are made."""
    path, equals, text = override.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        raise InputError(f"{option} {override}: write it as path=value, as in seeds=[1,2]")
    value = parse_yaml(text, f"{option} {override}")
    node: Any = document
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(node, list):
            if not key.isdigit() or int(key) >= len(node):
                at = ".".join(keys[:depth])
                raise InputError(
                    f"{option} {override}: {at} is a list of {len(node)}, indexed from 0; "
                    f"{key!r} is none of its items"
                )
            place: Any = int(key)
        elif isinstance(node, dict):
            place = key
            if not last:
                node.setdefault(key, {})
        else:
            at = ".".join(keys[:depth])
            raise InputError(
                f"{option} {override}: {at} is the single value {node!r}, with nothing inside: "
                f"set {at} as a whole"
            )
        if last:
            node[place] = value
        else:
            node = node[place]


def count(text: str, where: str) -> int:
    """A positive whole number with an optional k, M or B: `400M`, `1.6B`, `450_000`."""
    factor = {"k": 10**3, "m": 10**6, "b": 10**9}.get(text[-1:].lower(), 1)
    try:
        number = Decimal(text[:-1] if factor > 1 else text) * factor
    except InvalidOperation:
        number = Decimal(0)
    if not number.is_finite() or number < 1 or number != int(number):
        raise InputError(f"{where} {text}: write a positive whole number, 400M, 1.6B or 450k")
    return int(number)


def counts(text: str, where: str) -> list[int]:
    """Comma-separated whole numbers."""
    return [count(part.strip(), where) for part in text.split(",")]
