"""A trained cell as a checkpoint that other tools read."""

from pathlib import Path

from depthbench.errors import InputError
from depthbench.folder import CellFolder
from depthbench.model.decoder import build_decoder
from depthbench.model.export import to_llama
from depthbench.train.checkpoint import load_weights


def export_llama(cell: Path, out: Path) -> None:
    """Writes the trained cell's `transformers` Llama checkpoint to the new folder `out`.

    Raises `InputError` for a cell that is not done, or whose design Llama cannot express.
    """
    folder = CellFolder(cell)
    config = folder.config()
    if folder.status() != "done":
        raise InputError(f"{cell} is {folder.status()}, and only a done cell has final weights")
    if out.exists():
        raise InputError(f"{out} exists: choose a new folder")
    model = build_decoder(
        config.shape, config.corpus.vocab_size, config.design, config.norm_eps, config.seed
    )
    load_weights(folder.model_path, model)
    to_llama(model).save_pretrained(out)
