"""A trained cell as a model of lm-eval, under the name `depthbench`.

lm-eval knows no models but its own: importing this module makes it known, see `command`.
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows

from depthbench.domains.encoding import Fitted, encode_pair, fit
from depthbench.domains.scoring import TOKENS_PER_BATCH, batches
from depthbench.model.generate import generate
from depthbench.model.loss import token_nll
from depthbench.trained import TrainedCell, open_trained
from residuals import load_plugin

ROWS_PER_BATCH = 8
Scored = tuple[float, bool]


@register_model("depthbench")
class CellLM(TemplateLM):  # type: ignore[misc]
    """Log-likelihoods and text of the cell in the folder `cell`, whose design `plugin` may hold.

    Every text starts after one end-of-text mark, as documents did in training. A prompt loses its
    left where it is too long; a target longer than the training context is scored in windows.
    """

    def __init__(
        self,
        cell: str | Path | TrainedCell,
        plugin: str | None = None,
        batch_size: int | str | None = None,
        device: str | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        if plugin:
            load_plugin(plugin)
        if not isinstance(cell, TrainedCell):
            # lm-eval's command line says cuda:0 where nobody asked, and a batch size of 1.
            absent = device is not None and "cuda" in device and not torch.cuda.is_available()
            cell = open_trained(Path(cell), None if absent else device)
        self.trained = cell
        self.tokenizer = cell.corpus.tokenizer()
        self._device = cell.model.embedding.weight.device
        rows = int(batch_size or 1) if str(batch_size).isdigit() else 1
        self.rows_per_batch = rows if rows > 1 else ROWS_PER_BATCH
        of_device = TOKENS_PER_BATCH.get(self._device.type, TOKENS_PER_BATCH["cpu"])
        self.tokens_per_batch = rows * self.max_length if rows > 1 else of_device

    @property
    def max_length(self) -> int:
        """Positions that the model was trained on."""
        return self.trained.config.sequence_length

    @property
    def eot_token_id(self) -> int:
        return self.trained.corpus.end_of_text

    @property
    def tokenizer_name(self) -> str:
        return self.trained.corpus.tokenizer_hash

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        return encode_pair(self.tokenizer, "", string)[1]

    def tok_decode(self, tokens: Sequence[int]) -> str:
        """Their text, without end-of-text marks."""
        text: str = self.tokenizer.decode([token for token in tokens if token != self.eot_token_id])
        return text

    def loglikelihood(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[Scored]:
        pairs = [encode_pair(self.tokenizer, *request.args) for request in requests]
        return self._loglikelihood_tokens([("", *pair) for pair in pairs])

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **kwargs: Any
    ) -> list[Scored]:
        """Log-likelihood of each continuation, and whether greedy decoding would write it."""
        return self._scores(
            [
                fit(self.eot_token_id, context, continuation, self.max_length)
                for _, context, continuation in requests
            ]
        )

    def loglikelihood_rolling(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-likelihood of whole texts, in lm-eval's own rolling windows."""
        windows, owners = [], []
        for owner, request in enumerate(requests):
            ids = self.tok_encode(request.args[0])
            for seen, new in get_rolling_token_windows(ids, self.eot_token_id, self.max_length, 1):
                windows.append(Fitted([*seen, new[-1]], len(new), 0, False))
                owners.append(owner)
        totals = np.zeros(len(requests))
        np.add.at(totals, owners, [total for total, _ in self._scores(windows)])
        return totals.tolist()

    @torch.no_grad()
    def _scores(self, sequences: Sequence[Fitted]) -> list[Scored]:
        nats, greedy = np.zeros(len(sequences)), np.ones(len(sequences), dtype=bool)
        model = self.trained.model
        for batch in batches(sequences, self.max_length, self.tokens_per_batch, self._device):
            scored = batch.scored_BT
            x_ND, target_N = model(batch.tokens_BT)[scored], batch.targets_BT[scored]
            nll_N = token_nll(x_ND, model.head.weight, target_N)
            likeliest_N = torch.cat([model.head(x).argmax(-1) for x in x_ND.split(1024)])
            owner_N = np.repeat(batch.owner_B, scored.sum(1).tolist())
            np.add.at(nats, owner_N, nll_N.double().cpu().numpy())
            np.logical_and.at(greedy, owner_N, (likeliest_N == target_N).cpu().numpy())
        return list(zip((-nats).tolist(), greedy.tolist(), strict=True))

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Text up to the first stop sequence; what is new takes at most half the context."""
        prompts = [self._prompt(*request.args) for request in requests]
        texts = [""] * len(prompts)
        order = sorted(range(len(prompts)), key=lambda n: prompts[n][:4])
        for (_, room, stops, temperature), alike in groupby(order, lambda n: prompts[n][:4]):
            same = list(alike)
            for start in range(0, len(same), self.rows_per_batch):
                batch = same[start : start + self.rows_per_batch]
                tokens_BT = torch.tensor([prompts[n][4] for n in batch], device=self._device)

                def ended(row: list[int], stops: tuple[str, ...] = stops) -> bool:
                    text = self.tok_decode(row) if stops else ""
                    return row[-1] == self.eot_token_id or any(stop in text for stop in stops)

                rows = generate(self.trained.model, tokens_BT, room, ended, temperature)
                for n, row in zip(batch, rows, strict=True):
                    texts[n] = postprocess_generated_text(self.tok_decode(row), list(stops), None)
        return texts

    def _prompt(
        self, context: str, wanted: dict[str, Any]
    ) -> tuple[int, int, tuple[str, ...], float, list[int]]:
        """Its length, room for new tokens, stop sequences, temperature and tokens."""
        options = normalize_gen_kwargs(wanted)
        room = min(options["max_gen_toks"], self.max_length // 2)
        ids = [self.eot_token_id, *self.tok_encode(context)][-(self.max_length - room) :]
        stops = tuple(stop for stop in options["until"] if stop)
        return len(ids), room, stops, float(options.get("temperature") or 0), ids
