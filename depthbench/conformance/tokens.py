"""What one token may see of the others: only what attention shows it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from depthbench.conformance.checks import check, fail
from depthbench.conformance.subject import Subject
from depthbench.conformance.tiny import VOCAB, relative, shape_of, tokens_of
from depthbench.model.cache import KeyValueCache
from depthbench.model.decoder import Decoder
from residuals import Sequence, State

TOLERANCE = 1e-11
MIXES = ("start", "read", "attend", "write", "finish")


@check("causality", *MIXES)
@torch.no_grad()
def causality(subject: Subject) -> str:
    """Do logits before t not see token t, and those from t on see it?"""
    model, tokens = subject.moved(), tokens_of(2, 9)
    before = model.logits(tokens)
    for t in (3, 8):
        after = model.logits(_with_another(tokens, t))
        for position in range(9):
            changed = relative(after[:, position], before[:, position])
            if position < t and not changed <= TOLERANCE:
                fail(f"the logits at {position} change by {changed:.2g} with the token at {t}")
            if position >= t and changed < 1e-7:
                fail(f"the logits at {position} do not see the token at {t}")
    return "no logit changes with a later token, in float64"


def _with_another(tokens_BT: Tensor, t: int) -> Tensor:
    changed = tokens_BT.clone()
    changed[:, t] = (changed[:, t] + 1) % VOCAB
    return changed


@dataclass(frozen=True)
class OnlySelf:
    """Attention whose mixing over positions is the identity: each query sees its own value."""

    def __call__(self, q_BTHd: Tensor, k_BTGd: Tensor, v_BTGd: Tensor) -> Tensor:
        return v_BTGd.repeat_interleave(q_BTHd.shape[2] // v_BTGd.shape[2], 2)

    def joint(
        self,
        q_BTHd: Tensor,
        k_BTGd: Tensor,
        v_BTGd: Tensor,
        depth_k: State,
        depth_v: State,
        rotate_depth_query: bool = False,
    ) -> Tensor:
        num = q_BTHd.shape[2] // k_BTGd.shape[2]
        keys, values = (
            torch.stack((own, *(slot.view(own.shape) for slot in slots))).repeat_interleave(num, 3)
            for own, slots in ((k_BTGd, depth_k), (v_BTGd, depth_v))
        )
        p_SBTH = torch.softmax((q_BTHd * keys).sum(-1), 0)
        return (p_SBTH[..., None] * values).sum(0)


def logits_through(model: Decoder, seq: Sequence, tokens_BT: Tensor) -> Tensor:
    """(B, T, V) with attention's mixing replaced by `seq`."""
    design = model.design
    state = design.start(model.embedding(tokens_BT))
    for visit in range(0, design.stack.num_visits, 2):
        k = visit % design.stack.num_sublayers
        state = model.blocks[k // 2](k, visit, design, state, seq)
    logits_BTV: Tensor = model.head(model.final_norm(design.finish(state)))
    return logits_BTV


@check("token-locality", *MIXES)
@torch.no_grad()
def token_locality(subject: Subject) -> str:
    """With attention seeing its own position only, does nothing else cross tokens or sequences?"""
    model, tokens = subject.moved(), tokens_of(2, 7)
    logits = logits_through(model, OnlySelf(), tokens)
    alone = (tokens + 1) % VOCAB
    alone[0, 3] = tokens[0, 3]
    changed = relative(logits_through(model, OnlySelf(), alone)[0, 3], logits[0, 3])
    if not changed <= TOLERANCE:
        fail(f"the logits of one token change by {changed:.2g} with the other tokens")
    order = torch.tensor([4, 2, 6, 0, 5, 1, 3])
    permuted = logits_through(model, OnlySelf(), tokens[:, order])
    moved = relative(permuted, logits[:, order])
    if not moved <= TOLERANCE:
        fail(f"the logits of a token change by {moved:.2g} with its place")
    return "with attention taken away tokens are alone, in float64"


@check(
    "incremental-decoding",
    "attend",
    "read",
    "write",
    needs=("forward", "determinism", "token-locality"),
)
@torch.no_grad()
def incremental_decoding(subject: Subject) -> str:
    """Are logits in chunks with a key/value cache those of the whole sequence?"""
    check_decoding(subject)
    return "equal in chunks of 5, 1, 1, 4 and 2 tokens, in float64"


@torch.no_grad()
def check_decoding(subject: Subject, rounds: int = 1) -> None:
    """Fails if decoding in chunks is not the whole pass, in a stack run so often."""
    tokens = tokens_of(2, 13)
    model, cache = subject.moved(shape_of(2, 32, 4, 2), 0.4, rounds=rounds), KeyValueCache()
    parts = [model(chunk, cache) for chunk in tokens.split([5, 1, 1, 4, 2], 1)]
    off = relative(model.head(torch.cat(parts, 1)), model.logits(tokens))
    if not off <= 1e-10:
        fail(f"logits with a cache differ by {off:.2g}, with {rounds} round(s)")
