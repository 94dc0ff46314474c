"""Exported cells: what `transformers` loads is the cell, its tokenizer and its card."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

import residuals
from depthbench.data import Corpus
from depthbench.errors import InputError
from depthbench.export import CELL_FILE, export
from depthbench.folder import CellFolder
from depthbench.model.generate import generate
from depthbench.trained import open_trained
from tests.harness.kit import LENGTH, build_corpus, done_cell

LLAMA = ("pre-ln",)
TEXT = "a cell is a folder, naïve 漢字 <|endoftext|> of it"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with pytest.MonkeyPatch.context() as patch:
        # Where transformers copies the file by which it finds our classes.
        modules = str(tmp_path_factory.mktemp("modules"))
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", modules)
        patch.setattr(sys, "path", list(sys.path))
        corpus = build_corpus(tmp_path_factory.mktemp("text"))
        patch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
        yield corpus


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)


def tokens_of(corpus: Corpus, length: int = LENGTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(1, corpus.vocab_size, (3, length), generator=generator)


@pytest.mark.parametrize("design", residuals.names())
def test_every_design_loads_as_the_same_function(
    design: str, corpus: Corpus, tmp_path: Path
) -> None:
    cell = done_cell(tmp_path / "cell", corpus, design)
    export(cell.path, "hf", tmp_path / "out")
    ours, theirs = open_trained(cell.path).model, load(tmp_path / "out")
    tokens = tokens_of(corpus)
    assert isinstance(theirs, LlamaForCausalLM) == (design in LLAMA)
    with torch.no_grad():
        logits = theirs(tokens).logits
        torch.testing.assert_close(logits, ours.logits(tokens), rtol=1e-4, atol=1e-4)
        loss = theirs(tokens, labels=tokens).loss
        nll = ours.token_nll(tokens[:, :-1], tokens[:, 1:])
        assert loss.item() == pytest.approx(nll.mean().item(), rel=1e-5)
        labels = tokens.clone()
        labels[:, :20] = -100
        masked = theirs(tokens, labels=labels).loss
        assert masked.item() == pytest.approx(nll[:, 19:].mean().item(), rel=1e-5)
        greedy = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
        prompt, mask = tokens[:, :5], torch.ones(3, 5, dtype=torch.long)
        written = generate(ours, prompt, 6)
        for cached in (True, False):
            found = theirs.generate(prompt, attention_mask=mask, use_cache=cached, **greedy)
            assert found[:, 5:].tolist() == written
    assert theirs.config.max_position_embeddings == LENGTH
    assert theirs.config.vocab_size == corpus.vocab_size


def test_the_tokenizer_is_the_corpuss_and_begins_with_the_mark(
    corpus: Corpus, tmp_path: Path
) -> None:
    export(done_cell(tmp_path / "cell", corpus).path, "hf", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    plain = corpus.tokenizer().encode(TEXT).ids
    assert 0 not in plain
    assert tokenizer.encode(TEXT) == [0, *plain]
    assert tokenizer.encode(TEXT, add_special_tokens=False) == plain
    assert tokenizer.decode(plain) == TEXT
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 0, 0)
    assert tokenizer.model_max_length == LENGTH
    batch = tokenizer(["a", TEXT], padding=True)
    assert batch["attention_mask"][0] == [1, 1, *[0] * (len(plain) - 1)]


@pytest.mark.parametrize("design", ["hc", "moda"])
def test_padding_on_the_right_is_no_matter_and_on_the_left_refused(
    design: str, corpus: Corpus, tmp_path: Path
) -> None:
    export(done_cell(tmp_path / "cell", corpus, design).path, "hf", tmp_path / "out")
    model, tokens = load(tmp_path / "out"), tokens_of(corpus)
    mask = torch.ones_like(tokens)
    mask[0, 7:] = 0
    with torch.no_grad():
        alone = model(tokens[:1, :7]).logits
        padded = model(tokens, attention_mask=mask).logits
    torch.testing.assert_close(padded[:1, :7], alone, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="pad on the right"):
        model(tokens, attention_mask=mask.flip(1))


def test_a_new_model_of_the_config_is_initialised_by_the_rules(
    corpus: Corpus, tmp_path: Path
) -> None:
    cell = done_cell(tmp_path / "cell", corpus, "mhc")
    export(cell.path, "hf", tmp_path / "out")
    from depthbench.hf.modeling import DepthbenchConfig, DepthbenchForCausalLM
    from depthbench.model.decoder import build_decoder

    new = DepthbenchForCausalLM(DepthbenchConfig.from_pretrained(tmp_path / "out"))
    config = cell.config()
    sizes = (config.shape, config.corpus.vocab_size, config.design, config.norm_eps)
    fresh = dict(build_decoder(*sizes, config.seed).named_parameters())
    assert all(torch.equal(p, fresh[n]) for n, p in new.decoder.named_parameters())


def test_a_tuned_model_can_be_saved_and_loaded_again(corpus: Corpus, tmp_path: Path) -> None:
    export(done_cell(tmp_path / "cell", corpus, "full-attnres").path, "hf", tmp_path / "out")
    model, tokens = load(tmp_path / "out"), tokens_of(corpus)
    model.train()
    model(tokens, labels=tokens).loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= parameter.grad
    model.eval().save_pretrained(tmp_path / "tuned")
    with torch.no_grad():
        expected = model(tokens).logits
        found = load(tmp_path / "tuned")(tokens).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_process_that_knows_only_transformers_loads_it(corpus: Corpus, tmp_path: Path) -> None:
    cell = done_cell(tmp_path / "cell", corpus, "keel")
    export(cell.path, "hf", tmp_path / "out")
    script = (
        "import sys\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "load = [sys.argv[1]], {'trust_remote_code': True}\n"
        "model = AutoModelForCausalLM.from_pretrained(*load[0], **load[1])\n"
        "tokenizer = AutoTokenizer.from_pretrained(*load[0], **load[1])\n"
        "ids = tokenizer('a cell', return_tensors='pt').input_ids\n"
        "print(model(ids).logits.double().sum().item(), ids.tolist())\n"
    )
    root = str(Path(residuals.__file__).parents[1])
    places = {"PYTHONPATH": root, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "out")],
        env=os.environ | places | {"OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    total, ids = done.stdout.split(" ", 1)
    expected = [[0, *corpus.tokenizer().encode("a cell").ids]]
    assert json.loads(ids) == expected
    logits = open_trained(cell.path).model.logits(torch.tensor(expected)).double()
    assert float(total) == pytest.approx(logits.sum().item(), abs=1e-3)


def test_the_card_says_what_it_is_and_the_cell_goes_with_it(corpus: Corpus, tmp_path: Path) -> None:
    options = {"static": True}
    cell = done_cell(tmp_path / "cell", corpus, "hc", options)
    export(cell.path, "hf", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    for said in (
        '`hc@1` with {"static": true}',
        "arXiv 2409.19606",
        "2 blocks, width 32, MLP width 48, 4 heads, 2 KV heads",
        f"{12 * 4 * LENGTH:,} tokens in 12 steps, seed 1, peak learning rate 0.01",
        "4.2500 nats per token (perplexity 70.1), 2.5000 bits per byte",
        f"{corpus.name}, content hash `{corpus.hash}`",
        "trust_remote_code=True",
        "pip install depthbench",
    ):
        assert said in card, said
    assert "{" not in card.replace('{"static": true}', "")
    kept = json.loads((tmp_path / "out" / CELL_FILE).read_text())
    assert type(cell.config()).model_validate(kept) == cell.config()
    export(done_cell(tmp_path / "plain", corpus).path, "hf", tmp_path / "llama")
    card = (tmp_path / "llama" / "README.md").read_text()
    assert "trust_remote_code" not in card
    assert not list((tmp_path / "llama").glob("*.py"))


def test_what_cannot_be_exported_is_refused_and_nothing_written(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = done_cell(tmp_path / "cells" / "cell", corpus)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="there exists"):
        export(cell.path, "hf", tmp_path / "there")
    with pytest.raises(InputError, match="hf"):
        export(cell.path, "hg", tmp_path / "out")
    unfinished = CellFolder(tmp_path / "cells" / "pending")
    unfinished.create(cell.config())
    with pytest.raises(InputError, match="pending"):
        export(unfinished.path, "hf", tmp_path / "out")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("depthbench.export.write_json", fail)
    with pytest.raises(OSError, match="disk full"):
        export(cell.path, "hf", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cells", "there"]


@pytest.mark.parametrize(
    "loop",
    [
        {"layout": "whole", "rounds": 3},
        {"layout": "prelude-core-coda", "prelude": 1, "coda": 0, "forward": 3, "backward": 1},
    ],
    ids=["whole", "core"],
)
def test_a_looped_model_generates_with_a_cache_for_every_visit(
    loop: dict[str, Any], corpus: Corpus, tmp_path: Path
) -> None:
    cell = done_cell(tmp_path / "cell", corpus, loop=loop)
    export(cell.path, "hf", tmp_path / "out")
    ours, theirs = open_trained(cell.path).model, load(tmp_path / "out")
    assert not isinstance(theirs, LlamaForCausalLM)  # a loop is no Llama
    prompt = tokens_of(corpus)[:, :5]
    mask = torch.ones_like(prompt)
    greedy = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    for cached in (True, False):
        found = theirs.generate(prompt, attention_mask=mask, use_cache=cached, **greedy)
        assert found[:, 5:].tolist() == generate(ours, prompt, 6)
