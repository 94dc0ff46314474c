"""What every column of a result table holds: its type and its meaning, with the unit.

A number that a row does not have is missing: most measures belong to `done` cells only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

TEXT, WHOLE, REAL, TRUTH = "str", "Int64", "float64", "boolean"


@dataclass(frozen=True)
class Column:
    """`dtype` as pandas names it; all but text are nullable."""

    dtype: str
    meaning: str


COLUMNS: Mapping[str, Column] = {
    # What the cell is.
    "suite": Column(TEXT, "suite that asked for the cell; of a damaged cell, the folder above it"),
    "role": Column(TEXT, "`scored`, or `tuning` for a run that looked for a learning rate"),
    "cell": Column(TEXT, "name of the cell's folder: design, layers, width, seed, digest"),
    "path": Column(TEXT, "the cell's folder, as the report was told of it"),
    "copies": Column(TEXT, "further folders with this cell and the same outcome, after `; `"),
    "digest": Column(
        TEXT,
        "16 hex digits of the configuration without measures, tuning and how it is run (`ranks`, "
        "`activation_checkpointing`, `deterministic`): rows with one digest are one experiment; "
        "missing if the cell is damaged",
    ),
    "design": Column(TEXT, "name of the design"),
    "design_version": Column(WHOLE, "its version, raised whenever numbers may change"),
    "options": Column(TEXT, "JSON object of the design's options that are not its defaults"),
    "conformance": Column(
        TEXT,
        "what `depthbench check` had said of the design when the cell ended, `conforms` or what "
        "failed; missing if it was not asked since the design's file last changed",
    ),
    "ladder": Column(TEXT, "ladder that the shape is from"),
    "loop": Column(TEXT, "JSON object of the loop; missing where every block is run once"),
    "layers": Column(WHOLE, "blocks of the shape; a loop runs some of them several times"),
    "d_model": Column(WHOLE, "width of the residual stream"),
    "ffn": Column(WHOLE, "inner width of the SwiGLU MLP, after matching"),
    "heads": Column(WHOLE, "query heads"),
    "kv_heads": Column(WHOLE, "key-value heads"),
    "aspect_ratio": Column(REAL, "d_model / layers"),
    "match": Column(
        TEXT,
        "`shape`: the design's own parameters ride on top; `total`: the MLP is narrowed until the "
        "total is Pre-LN's",
    ),
    "seed": Column(WHOLE, "seed of initial values and of the order of tokens"),
    "learning_rate": Column(REAL, "peak learning rate"),
    "rate_at_edge": Column(
        TRUTH, "whether the best rate was the outermost that was tried; missing without tuning"
    ),
    "tuned": Column(
        TEXT, "JSON object: rates and seeds that were tried; missing if the rate was given"
    ),
    "sequence_length": Column(WHOLE, "tokens per training sequence"),
    "batch_size": Column(WHOLE, "sequences per optimiser step"),
    "steps": Column(WHOLE, "optimiser steps of a whole run"),
    "tokens": Column(WHOLE, "training tokens of a whole run: steps × batch_size × sequence_length"),
    "budget": Column(TEXT, "`tokens` or `flops`: what the suite fixed; never ranked together"),
    "precision": Column(
        TEXT, "`fp32`; `bf16`: autocast over fp32 weights; `paper_bf16`: over bf16 weights"
    ),
    "recipe": Column(TEXT, "JSON object: optimiser, schedule and norm epsilon, without the rate"),
    "corpus": Column(TEXT, "name of the corpus"),
    "corpus_hash": Column(TEXT, "hash of the prepared corpus"),
    "tokenizer_hash": Column(TEXT, "hash of the tokenizer file"),
    "evaluation": Column(TEXT, "12 hex digits of how the validation loss was taken"),
    "domains": Column(
        TEXT,
        "16 hex digits of sets, items, tokenizer and length behind the domain scores; missing if "
        "there are none",
    ),
    "vocab_size": Column(WHOLE, "types of the tokenizer"),
    "evaluation_tokens": Column(WHOLE, "validation tokens that were asked for"),
    # How it ended.
    "status": Column(TEXT, "`done`, `diverged`, `failed`, `interrupted`, `running` or `pending`"),
    "step": Column(WHOLE, "the last step: of the run, or of its log if it has not ended"),
    "diverged_step": Column(WHOLE, "step at which loss or gradient was lost; of diverged cells"),
    "error": Column(TEXT, "what went wrong"),
    # Losses.
    "loss": Column(REAL, "validation loss at the end of training, nats per token"),
    "bits_per_byte": Column(REAL, "the same in bits per byte of text"),
    "train_loss": Column(REAL, "mean training loss of the last tenth of the steps, nats per token"),
    "unigram_entropy": Column(
        REAL, "entropy of the validation tokens' frequencies, nats: what no context would give"
    ),
    # Costs.
    "parameters": Column(WHOLE, "all parameters: blocks, embedding, head, final norm"),
    "backbone": Column(WHOLE, "parameters between embedding and final norm without the design's"),
    "added": Column(WHOLE, "parameters that the design has beyond Pre-LN's"),
    "added_share": Column(REAL, "added / backbone"),
    "N_once": Column(WHOLE, "non-embedding parameters that a forward pass uses once"),
    "N_rec": Column(WHOLE, "non-embedding parameters that a forward pass uses in every loop"),
    "T": Column(WHOLE, "forward loops; 1 without a loop"),
    "B": Column(WHOLE, "loops through which gradients flow; 1 without a loop"),
    "D": Column(WHOLE, "training tokens: `tokens` as scaling laws call it"),
    "train_flops_per_token": Column(WHOLE, "FLOPs of training, forward and backward, per token"),
    "prefill_flops": Column(
        WHOLE, "forward FLOPs of one sequence of 4096 tokens, without the head"
    ),
    "kv_cache_bytes": Column(WHOLE, "keys and values of 4096 tokens in bf16, bytes"),
    # A real number: at paper scale it is beyond 64-bit integers.
    "total_flops": Column(REAL, "FLOPs of the whole training run"),
    "peak_memory_bytes": Column(
        WHOLE,
        "peak of the cell's process, of several ranks the largest, bytes: resident memory on a "
        "CPU, the allocator's on CUDA",
    ),
    "activation_bytes": Column(
        WHOLE,
        "bytes that autograd keeps for one micro-batch; the same on every machine; missing of "
        "sharded cells",
    ),
    "tokens_per_second": Column(REAL, "training speed; compares within one host only"),
    "step_seconds": Column(REAL, "seconds of one optimiser step; compares within one host only"),
    "device_hours": Column(
        REAL, "hours of training times ranks, all parts of a resumed run together"
    ),
    "seconds": Column(REAL, "seconds of the process that ended the cell, measures included"),
    # Where it ran.
    "host": Column(TEXT, "host name"),
    "cpu": Column(TEXT, "model of the CPU"),
    "device": Column(TEXT, "`cpu`, `mps` or the name of the GPU"),
    "ranks": Column(WHOLE, "processes that trained the cell"),
    "threads": Column(WHOLE, "torch threads of each"),
    "platform": Column(TEXT, "operating system and C library"),
    "python": Column(TEXT, "version of Python"),
    "torch": Column(TEXT, "version of PyTorch"),
    "numpy": Column(TEXT, "version of NumPy"),
    "depthbench": Column(TEXT, "version of depthbench"),
    "git_commit": Column(TEXT, "commit of the checkout that ran; missing for an installed package"),
    "git_dirty": Column(TRUTH, "whether that checkout had uncommitted changes"),
    "config": Column(TEXT, "JSON of the whole configuration: all that `reproduce` needs"),
}

FAMILIES: Mapping[str, Column] = {
    "loss/<source>": Column(
        REAL, "validation loss on one source of the corpus, nats per token; of done cells"
    ),
    "domain/<name>": Column(
        REAL, "NLL of a domain's answers, mean over its sets, nats per target token"
    ),
    "domain_low/<name>": Column(REAL, "lower end of its 95 % interval over items, nats per token"),
    "domain_high/<name>": Column(REAL, "upper end of its 95 % interval over items, nats per token"),
    "domain_bpb/<name>": Column(REAL, "the same NLL in bits per byte of the answers"),
    "probe/<name>/<what>": Column(
        REAL, "what a layer probe sums up, in the unit of the probe; missing if it cannot answer"
    ),
}
"""Columns of which a table has as many as its cells were asked for, after all others."""

PREFIXES = tuple(f"{name.partition('/')[0]}/" for name in FAMILIES)


def described(name: str) -> Column | None:
    """The column of that name, or the family that it belongs to; None for a foreign one."""
    if name in COLUMNS:
        return COLUMNS[name]
    kind, slash, member = name.partition("/")
    of_kind = (column for family, column in FAMILIES.items() if family.startswith(f"{kind}/"))
    return next(of_kind, None) if slash and member else None
