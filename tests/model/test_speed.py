"""What compiling by parts costs in compilations, and that it changes no loss."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from depthbench.config import DesignRef, Shape
from depthbench.model.decoder import Decoder, build_decoder
from depthbench.model.speed import compile_parts
from tests.residuals.kit import tokens_of

VOCABULARY = 23


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model_of(design: str, layers: int) -> Decoder:
    shape = Shape(layers=layers, d_model=8, ffn=12, heads=2, kv_heads=2)
    return build_decoder(shape, VOCABULARY, DesignRef(name=design, version=1), 1e-6, 0)


def stepped(model: Decoder) -> tuple[float, list[torch.Tensor]]:
    ids = tokens_of() % VOCABULARY
    loss = model.summed_nll(ids[:, :-1], ids[:, 1:])
    loss.backward()
    return loss.item(), [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("design", ["pre-ln", "hc", "full-attnres", "moda"])
def test_70_blocks_compile_norms_and_mlps_once(design) -> None:
    """One graph for each of the two, and at most two more: a first gradient, another input."""
    graphs: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph.forward

    plain, compiled = model_of(design, 70), model_of(design, 70)
    compile_parts(compiled, backend)
    expected, found = stepped(plain), stepped(compiled)
    assert 2 <= len(graphs) <= 4
    once = len(graphs)
    compiled.zero_grad()
    stepped(compiled)
    assert len(graphs) == once
    assert found[0] == expected[0]
    for ours, theirs in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_generated_code_gives_the_same_loss() -> None:
    plain, compiled = model_of("pre-ln", 2), model_of("pre-ln", 2)
    compile_parts(compiled)
    expected, found = stepped(plain), stepped(compiled)
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    for ours, theirs in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
