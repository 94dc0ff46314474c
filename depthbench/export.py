"""A trained cell as a folder that other tools load by their usual call."""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from depthbench.errors import InputError
from depthbench.folder import write_json
from depthbench.trained import TrainedCell, open_trained

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

Target = Literal["hf"]
CELL_FILE = "cell.json"
MODELING = "modeling_depthbench"


def export(cell: Path, to: str, out: Path) -> None:
    """Writes the cell to the new folder `out`: weights, config, tokenizer and model card.

    To `hf`, a design whose stack is Llama's becomes a plain Llama, every other one a model that
    needs this package where it is loaded. Raises `InputError` for an unknown `to` and an `out` that
    exists, else as `open_trained` does; `out` is there whole or not at all.
    """
    if to not in get_args(Target):
        from residuals import unknown

        raise InputError(unknown("export format", to, get_args(Target)))
    if out.exists():
        raise InputError(f"{out} exists: choose a new folder")
    trained = open_trained(cell, "cpu")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as aside:
        folder = Path(aside, out.name)
        _write(trained, folder)
        os.rename(folder, out)


def _write(trained: TrainedCell, folder: Path) -> None:
    from depthbench.hf.card import model_card

    plain = trained.model.llama_gains() is not None
    model = _llama(trained) if plain else _own(trained, folder)
    model.save_pretrained(folder)
    _tokenizer(trained).save_pretrained(folder)
    write_json(folder / CELL_FILE, trained.config.model_dump(mode="json"))
    (folder / "README.md").write_text(model_card(trained, folder.name, plain), encoding="utf-8")


def _llama(trained: TrainedCell) -> "PreTrainedModel":
    from depthbench.model.decoder import Decoder
    from depthbench.model.export import to_llama

    assert isinstance(trained.model, Decoder)
    return to_llama(trained.model, trained.config.sequence_length, trained.corpus.end_of_text)


def _own(trained: TrainedCell, folder: Path) -> "PreTrainedModel":
    """The cell in our own classes, and beside it the file through which they are found."""
    from depthbench.hf.modeling import DepthbenchConfig, DepthbenchForCausalLM

    names = {"AutoConfig": DepthbenchConfig, "AutoModelForCausalLM": DepthbenchForCausalLM}
    config = DepthbenchConfig(
        trained.config.model_dump(mode="json"),
        bos_token_id=trained.corpus.end_of_text,
        eos_token_id=trained.corpus.end_of_text,
        auto_map={auto: f"{MODELING}.{own.__name__}" for auto, own in names.items()},
    )
    model = DepthbenchForCausalLM(config)
    model.decoder.load_state_dict(trained.model.state_dict())
    folder.mkdir()
    (folder / f"{MODELING}.py").write_text(
        '"""Where the classes of this model are: install the package depthbench."""\n\n'
        "from depthbench.hf.modeling import DepthbenchConfig, DepthbenchForCausalLM\n\n"
        '__all__ = ["DepthbenchConfig", "DepthbenchForCausalLM"]\n'
    )
    model.requires_grad_(False)
    return model


def _tokenizer(trained: TrainedCell) -> "PreTrainedTokenizerFast":
    """The corpus's tokenizer; a text begins with end-of-text, as documents did in training."""
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    tokenizer, number = trained.corpus.tokenizer(), trained.corpus.end_of_text
    mark = tokenizer.id_to_token(number)
    tokenizer.post_processor = TemplateProcessing(
        single=[mark, "$A"], pair=[mark, "$A", "$B"], special_tokens=[(mark, number)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=mark,
        eos_token=mark,
        pad_token=mark,
        padding_side="right",
        model_max_length=trained.config.sequence_length,
        split_special_tokens=True,  # the mark's spelling in a text is text like any other
        clean_up_tokenization_spaces=False,
    )
