"""The recipe of `pypi-text` as data, read from `pypi_text.yaml`."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import Field

from depthbench.config import Frozen
from depthbench.data.wheels import Wheel
from depthbench.inputs import parse_yaml, validated

Reader = Literal["speeches", "summaries", "factbook", "code"]


class HeldOut(Frozen):
    """Documents of some topics that are set aside under a name of their own."""

    name: str
    topics: tuple[str, ...]
    share: float = Field(gt=0, lt=1)


class Source(Frozen):
    """Where the documents of one source lie, which of them are kept, and what is held out."""

    description: str
    licence: str
    reader: Reader
    wheels: tuple[Wheel, ...]
    members: tuple[str, ...]
    without: tuple[str, ...] = ()
    without_fields: tuple[str, ...] = ()
    min_characters: int = Field(default=1, ge=1)
    max_digit_share: float = Field(default=1.0, gt=0, le=1)
    max_line: int | None = Field(default=None, ge=1)
    technical: bool = False
    validation_share: float = Field(gt=0, lt=1)
    held_out: HeldOut | None = None


class TokenizerFile(Frozen):
    """The committed tokenizer."""

    file: str
    vocab_size: int = Field(ge=257)
    sha256: str


class Manifest(Frozen):
    """All that `pypi-text` is made of; `reference_hash` is what the prepared corpus hashes to."""

    name: str
    description: str
    max_characters: int = Field(ge=1)
    technical_share: float = Field(ge=0, lt=1)
    tokenizer: TokenizerFile
    reference_hash: str
    sources: dict[str, Source]

    @property
    def wheels(self) -> list[Wheel]:
        return [wheel for source in self.sources.values() for wheel in source.wheels]

    def fingerprint(self) -> str:
        """Hash of everything that decides the content; a change makes another corpus folder.

        With the reference hash in it, so does a change of the code that reads the wheels.
        """
        content = self.model_dump_json(exclude={"description"})
        return hashlib.sha256(content.encode()).hexdigest()


@cache
def pypi_text() -> Manifest:
    """The manifest that ships with the package."""
    text = (files("depthbench.data") / "pypi_text.yaml").read_text(encoding="utf-8")
    return validated(Manifest, parse_yaml(text, "pypi_text.yaml"), "pypi_text.yaml")
