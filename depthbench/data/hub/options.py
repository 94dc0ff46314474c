"""Which part of a hub repository is a corpus, and which corpora are known by name."""

import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from depthbench.config import Frozen
from depthbench.data.layout import FORMAT
from depthbench.errors import InputError
from depthbench.inputs import count, parse_yaml, validated

PREFIX = "hf:"


def _count(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return count(value, "tokens")
    except InputError as error:
        raise ValueError(str(error)) from None


Tokens = Annotated[int, BeforeValidator(_count), Field(ge=1)]


GPT_NEOX = "EleutherAI/gpt-neox-20b"
_GPT_NEOX_REVISION = "c292233c833e336628618a88a648727eb3dff0a7"
_GPT_NEOX_SHA256 = "c24618a1b3e6a38167beff1c72cffd126c3a66254347304b50547d12c5f25624"


def _revision(data: dict[str, Any]) -> str:
    return _GPT_NEOX_REVISION if data.get("repository") == GPT_NEOX else "main"


def _sha256(data: dict[str, Any]) -> str:
    return _GPT_NEOX_SHA256 if data.get("revision") == _GPT_NEOX_REVISION else ""


class HubTokenizer(Frozen):
    """The `tokenizer.json` of a repository. `vocab_size` may pad its types to a round number.

    `sha256` is what the file must hash to; without one, whatever the revision holds is taken.
    """

    repository: str = GPT_NEOX
    revision: str = Field(default_factory=_revision)
    sha256: str = Field(default_factory=_sha256, pattern="^([0-9a-f]{64})?$")
    vocab_size: int = Field(default=50280, ge=257)


class HubOptions(Frozen):
    """How much of a hub corpus is taken, and which part of its repository.

    `tokens` are for training: the first document that reaches them is the last one. Counts may be
    written as `8B` or `400M`. `subset` and `revision` are those of the known corpus unless given;
    of `hf:owner/name` they are what the repository's card calls its default, and `main`.
    """

    tokens: Tokens = 8_000_000_000
    validation_tokens: Tokens = 10_000_000
    validation_shards: int = Field(default=1, ge=1)
    subset: str | None = None
    split: str = "train"
    revision: str | None = None
    text: str = "text"
    tokenizer: HubTokenizer = HubTokenizer()


class HubCorpus(Frozen):
    """A hub corpus and what is taken of it, resolved: all that decides its content."""

    name: str
    origin: str
    licence: str = ""
    repository: str
    revision: str
    subset: str | None
    options: HubOptions

    def fingerprint(self, *, with_tokens: bool = True) -> str:
        """Hash of all this; without `tokens`, of what a tokenised shard depends on."""
        content = self.model_dump(exclude={"origin", "licence"})
        if not with_tokens:
            for name in ("tokens", "validation_tokens", "validation_shards"):
                del content["options"][name]
        return hashlib.sha256(json.dumps([FORMAT, content], sort_keys=True).encode()).hexdigest()


class _Known(Frozen):
    """One entry of `hub.yaml`."""

    description: str
    licence: str
    repository: str
    revision: str
    subset: str


@cache
def known() -> dict[str, _Known]:
    """The entries of `hub.yaml` by name."""
    document = parse_yaml((files("depthbench.data") / "hub.yaml").read_text("utf-8"), "hub.yaml")
    return {name: validated(_Known, entry, f"hub.yaml: {name}") for name, entry in document.items()}


def hub_corpus(name: str, options: HubOptions) -> HubCorpus | None:
    """The corpus that `name` means, a known one or `hf:owner/name`; None if it is neither."""
    entry = known().get(name)
    if entry is not None:
        return HubCorpus(
            name=name,
            origin=name,
            licence=entry.licence,
            repository=entry.repository,
            revision=options.revision or entry.revision,
            subset=options.subset or entry.subset,
            options=options,
        )
    if not name.startswith(PREFIX):
        return None
    repository = name.removeprefix(PREFIX)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise InputError(f"corpus {name}: write it as {PREFIX}owner/name")
    return HubCorpus(
        name=repository.replace("/", "-"),
        origin=name,
        repository=repository,
        revision=options.revision or "main",
        subset=options.subset,
        options=options,
    )
