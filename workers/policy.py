"""The policy in torch: log-probabilities of the sampled tokens, and how undecided it was there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workers.microbatches import Layout, MicroBatch

PROBE_TOKENS = 8
PROBE_TOLERANCE = 0.05
"""Largest error of a state, in standard deviations of them all; bfloat16 makes about 0.01."""
WINDOWS = ("attention_chunk_size", "window_size", "attention_window")
"""Settings of models whose tokens do not see everything before them."""
ENTROPY_ROWS = 256
"""Distributions whose entropy is computed at once: those of a large vocabulary need their room."""


class Policy:
    """A Hugging Face causal language model, as something that scores sampled tokens."""

    def __init__(self, model: Any, temperature: float) -> None:
        self.model = model
        self.temperature = temperature or 1.0
        """Log-probabilities are those of the distribution sampled from; greedy counts as 1."""
        self._is_split = _is_body_and_head(model)
        self.shares_prompts = shares_prompts(model)
        """Whether trajectories may stand behind one copy of their prompt."""
        self.width = int(model.get_input_embeddings().weight.shape[1])
        """Numbers in a token's state."""

    def logprobs(self, batch: MicroBatch, temperature: float | None = None) -> Tensor:
        """Log-probability of each sampled token given what stands before it, [B, T].

        At the policy's own temperature unless another is given. 0 where nothing was sampled.
        """
        return _placed(batch, _chosen(batch, self._logits(batch, temperature)))

    def logprobs_and_entropies(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """``logprobs``, and the entropy (nats) of the distributions they are from, both [B, T].

        Entropies have no gradient.
        """
        logits = self._logits(batch, None)
        chosen = _placed(batch, _chosen(batch, logits))
        return chosen, _placed(batch, entropies(logits.detach()))

    def _logits(self, batch: MicroBatch, temperature: float | None) -> Tensor:
        """[sampled tokens, vocabulary], divided by the temperature.

        The head is applied to the sampled positions only: with a large vocabulary the logits of all
        positions would not fit.
        """
        # Right-padding needs no attention mask: with causal attention no token sees what follows.
        token_ids = batch.token_ids
        rows, columns = batch.action_mask.nonzero(as_tuple=True)
        before = (rows, batch.before[rows, columns])
        given = {
            "input_ids": token_ids,
            "use_cache": False,
            **as_arguments(batch.layout, self.model.dtype),
        }
        if self._is_split:
            states = self.model.base_model(**given).last_hidden_state
            logits = self.model.get_output_embeddings()(states[before])
        else:
            logits = self.model(**given).logits[before]
        scaled: Tensor = logits.float() / (temperature or self.temperature)
        return scaled


def entropies(logits: Tensor) -> Tensor:
    """The entropy of each row's distribution in nats: [rows, vocabulary] to [rows]."""
    parts = [
        torch.special.entr(part.softmax(-1)).sum(-1) for part in torch.split(logits, ENTROPY_ROWS)
    ]
    return torch.cat(parts)


def _chosen(batch: MicroBatch, logits: Tensor) -> Tensor:
    """Log-probability of what was sampled, by sampled token."""
    sampled = batch.token_ids[batch.action_mask].unsqueeze(-1)
    return logits.gather(-1, sampled).squeeze(-1) - logits.logsumexp(-1)


def _placed(batch: MicroBatch, values: Tensor) -> Tensor:
    """A value for each sampled token where it stands in the batch, 0 elsewhere."""
    everywhere = torch.zeros(batch.token_ids.shape, device=values.device)
    return everywhere.index_put(batch.action_mask.nonzero(as_tuple=True), values)


@torch.no_grad()
def _is_body_and_head(model: Any) -> bool:
    """Whether the logits are the head applied to the body's last state, with nothing between.

    Some architectures scale or cap their logits; those are scored by the whole model.
    """
    probe = torch.arange(PROBE_TOKENS, device=model.device).unsqueeze(0)
    whole = model(input_ids=probe, use_cache=False).logits
    states = model.base_model(input_ids=probe, use_cache=False).last_hidden_state
    return torch.allclose(model.get_output_embeddings()(states), whole, rtol=1e-3, atol=1e-3)


def as_arguments(layout: Layout | None, dtype: torch.dtype) -> dict[str, Tensor]:
    """A layout as arguments of the model: what is not seen scores the lowest number."""
    if layout is None:
        return {}
    hidden = torch.zeros(layout.attends.shape, dtype=dtype, device=layout.attends.device)
    hidden.masked_fill_(~layout.attends, torch.finfo(dtype).min)
    return {"position_ids": layout.positions, "attention_mask": hidden}


def shares_prompts(model: Any) -> bool:
    """Whether two short trajectories behind one prompt come out as they do alone.

    Models with a state or with kernels that take no table do not. Windows of attention would be
    lost, which nothing as short as this could show, so they are looked for by name.
    """
    config = model.config.get_text_config()
    settings = config.to_dict()
    kinds = set(settings.get("layer_types") or ()) - {"full_attention"}
    windows = [settings.get(name) for name in WINDOWS]
    if settings.get("use_sliding_window", True):
        windows.append(settings.get("sliding_window"))
    if kinds or any(windows) or config._attn_implementation != "sdpa":
        return False
    try:
        return _comes_out_the_same(model)
    except Exception:  # a model may refuse a table in any way; it trains without sharing
        return False


@torch.no_grad()
def _comes_out_the_same(model: Any) -> bool:
    ids = torch.arange(PROBE_TOKENS, device=model.device)
    prompt, one, other = ids[:4], ids[4:6], ids[6:]
    owners = torch.tensor([0] * 6 + [1] * 2, device=model.device)
    positions = torch.tensor([0, 1, 2, 3, 4, 5, 4, 5], device=model.device)
    attends = (ids <= ids[:, None]) & ((ids < 4) | (owners == owners[:, None]))
    seen = as_arguments(Layout(positions[None], attends[None, None]), model.dtype)

    def states(token_ids: Tensor, **given: Tensor) -> Tensor:
        answer = model.base_model(input_ids=token_ids[None], use_cache=False, **given)
        found: Tensor = answer.last_hidden_state[0, 4:].float()
        return found

    together = states(ids, **seen)
    alone = torch.cat([states(torch.cat([prompt, own])) for own in (one, other)])
    return bool((together - alone).abs().max() < PROBE_TOLERANCE * alone.std())
