"""The fields of a pydantic model and of the models in it: path, type, default, meaning."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from generated.markdown import code, prose, table, written
from generated.meanings import MEANINGS

_REF = "#/$defs/"
Schema = dict[str, Any]


def described(model: type[BaseModel]) -> str:
    """One table for the model and for every one inside it, by where it first stands.

    Raises `ValueError` for a field without a meaning, and for a meaning without a field.
    """
    root = model.model_json_schema()
    models = {model.__name__: root, **root["$defs"]}
    _check(models)
    parts = []
    for name, prefix in _places(model.__name__, models).items():
        where = f", at `{prefix}`" if prefix else ""
        parts.append(f"### {name} {{#{name.lower()}}}\n")
        parts.append(f"{prose(models[name].get('description'))}\n")
        parts.append(f"{len(models[name]['properties'])} fields{where}.\n")
        parts.append(table(("path", "type", "default", "meaning"), _rows(name, prefix, models)))
    return "\n".join(parts)


def _check(models: dict[str, Schema]) -> None:
    undescribed = {
        f"{name}.{field}"
        for name, schema in models.items()
        for field, about in schema["properties"].items()
        if "description" not in about
    }
    if lacking := sorted(undescribed - MEANINGS.keys()):
        raise ValueError(f"no meaning for {', '.join(lacking)}: add it to the model or MEANINGS")
    if needless := sorted(MEANINGS.keys() - undescribed):
        raise ValueError(f"MEANINGS has {', '.join(needless)}, of no field or one described: drop")


def _places(first: str, models: dict[str, Schema]) -> dict[str, str]:
    """The path at which each model first stands, breadth first."""
    found, queue = {first: ""}, [first]
    while queue:
        name = queue.pop(0)
        for field, about in models[name]["properties"].items():
            for inner in _models_in(about):
                if inner not in found:
                    listed = "[]" if _is_list(about) else ""
                    found[inner] = ".".join(filter(None, (found[name], field + listed)))
                    queue.append(inner)
    return found


def _models_in(about: Any) -> Iterator[str]:
    if isinstance(about, dict):
        if str(about.get("$ref", "")).startswith(_REF):
            yield about["$ref"].removeprefix(_REF)
        for key, inner in about.items():
            if key != "discriminator":
                yield from _models_in(inner)
    elif isinstance(about, list):
        for inner in about:
            yield from _models_in(inner)


def _is_list(about: Schema) -> bool:
    return any(kind.get("type") == "array" for kind in (about, *about.get("anyOf", ())))


def _rows(name: str, prefix: str, models: dict[str, Schema]) -> Iterator[tuple[str, ...]]:
    schema = models[name]
    for field, about in schema["properties"].items():
        path = f"{prefix}.{field}" if prefix else field
        meaning = about.get("description") or MEANINGS[f"{name}.{field}"]
        yield code(path), kind(about), _default(field, about, schema, meaning), meaning


def _default(field: str, about: Schema, schema: Schema, meaning: str) -> str:
    # What is filled in before validation counts as required in a schema.
    if field in schema.get("required", ()) and "by default" not in meaning:
        return "required"
    if "$ref" in about:
        return "its defaults"
    if "default" not in about:  # made from other values, as the meaning says
        return "derived"
    value = about["default"]
    return code(written(value)) if value != "" else "empty"


def kind(about: Schema) -> str:
    """The type in words, with its bounds and a link to a nested model."""
    if "$ref" in about:
        name = about["$ref"].removeprefix(_REF)
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in about:
            return " or ".join(map(kind, about[key]))
    if "const" in about or "enum" in about:
        return " or ".join(map(code, about.get("enum", [about.get("const")])))
    if about["type"] == "array":
        return f"list of {kind(about['items'])}{_bounds(about)}"
    if about["type"] == "object":
        return f"mapping of names to {kind(about['additionalProperties'])}"
    words = {"string": "text", "boolean": "true or false", "null": "null"}
    return f"{words.get(about['type'], about['type'])}{_bounds(about)}"


def _bounds(about: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {about[key]:g}" for key, sign in signs.items() if key in about]
    found += [f"at least {about['minItems']}"] if "minItems" in about else []
    return f" ({', '.join(found)})" if found else ""
