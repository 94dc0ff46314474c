"""The model card of an exported cell."""

import json
from math import exp

import residuals
from depthbench import __version__
from depthbench.trained import TrainedCell

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [depthbench]
license: other
---
# {name}

A decoder with the residual design {title} ({paper}), trained by depthbench {version} to compare
designs at a fixed budget. It is a measuring object, small and trained on little text, and not meant
to be used for anything else.

| | |
|---|---|
| design | `{design}`{options} |
| shape | {layers} blocks, width {d_model}, MLP width {ffn}, {heads} heads, {kv_heads} KV heads |
| parameters | {parameters:,} |
| training | {tokens:,} tokens in {steps:,} steps, seed {seed}, peak learning rate {rate:g} |
| context | {context} tokens |
| validation | {loss:.4f} nats per token (perplexity {perplexity:.1f}), {bits:.4f} bits per byte |
| corpus | {corpus}, content hash `{corpus_hash}` |

## Licences

The weights were made from texts under these licences: {licences}. Whoever passes the weights on
should look at them. The code is Apache-2.0.

## Load

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}"{arguments})
model = AutoModelForCausalLM.from_pretrained("{name}"{arguments})
```

{needs}Texts begin with one end-of-text mark, which the tokenizer adds. Beyond {context} tokens the
model was never trained.
"""
OWN = """This needs `pip install depthbench`, in the version above or a later one that still has
`{design}`: the file `modeling_depthbench.py` only names its classes. `generate` works with and
without its cache; a batch must not be padded on the left.{plugin}

"""
PLUGIN = (
    " The design is not part of depthbench: load its file first, `residuals.load_plugin(FILE)`."
)


def model_card(trained: TrainedCell, name: str, plain: bool) -> str:
    """The card of the folder `name`; `plain` if `transformers` loads it with its own code."""
    config = trained.config
    result = trained.folder.result()
    assert result is not None  # a trained cell is done
    identifier = f"{config.design.name}@{config.design.version}"
    design = residuals.get(identifier)
    foreign = not design.__module__.startswith("residuals.")
    needs = OWN.format(design=identifier, plugin=PLUGIN if foreign else "")
    options = f" with {json.dumps(config.design.options)}" if config.design.options else ""
    licences = [f"{source} {of}" for source, of in trained.corpus.header.licences.items()]
    return CARD.format(
        name=name,
        title=design.title,
        paper=f"arXiv {design.paper}",
        version=__version__,
        design=identifier,
        options=options,
        **config.shape.model_dump(),
        parameters=sum(p.numel() for p in trained.model.parameters()),
        tokens=config.tokens,
        steps=config.steps,
        seed=config.seed,
        rate=config.optimizer.learning_rate,
        context=config.sequence_length,
        loss=result["measures"]["loss"],
        perplexity=exp(result["measures"]["loss"]),
        bits=result["measures"]["bits_per_byte"],
        corpus=config.corpus.name,
        corpus_hash=config.corpus.hash,
        licences="; ".join(licences) or "not known, the corpus is local text",
        arguments="" if plain else ", trust_remote_code=True",
        needs="" if plain else needs,
    )
