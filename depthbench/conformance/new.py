"""A new design's file: one that works, with comments that teach the contract."""

import re
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template

import residuals
from depthbench.errors import InputError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def write_design(name: str, out: Path | None = None) -> Path:
    """Writes the file of the design `name`, to `out` or beside here, and returns its path.

    Raises `InputError` for a name that is taken or not in lowercase with dashes, and for a file
    that exists or whose folder does not.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot name a design: write lowercase letters, digits and single dashes, "
            "beginning with a letter, as in my-design"
        )
    if name in residuals.names():
        raise InputError(f"a design {name!r} exists already: choose another name")
    path = Path(f"{name.replace('-', '_')}.py") if out is None else out
    path = path / f"{name.replace('-', '_')}.py" if path.is_dir() else path
    if path.suffix != ".py":
        raise InputError(f"{path} is no Python file: give --out a name that ends in .py")
    words = name.split("-")
    template = (files("depthbench.conformance") / "template.py.txt").read_text(encoding="utf-8")
    class_name = "".join(word.capitalize() for word in words)
    if iskeyword(class_name) or re.search(rf"\b{class_name}\b", template):
        class_name += "Design"  # None and State are taken
    title = " ".join(word.capitalize() for word in words)
    text = Template(template).substitute(name=name, title=title, class_name=class_name)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists, and is left as it is: choose another --out") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    return path
