"""The policy in torch: log-probabilities of the sampled tokens, and nothing more than those."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

PROBE_TOKENS = 8


class Policy:
    """A Hugging Face causal language model, as something that scores sampled tokens."""

    def __init__(self, model: Any, temperature: float) -> None:
        self.model = model
        self.temperature = temperature or 1.0
        """Log-probabilities are those of the distribution sampled from; greedy counts as 1."""
        self._is_split = _is_body_and_head(model)

    def logprobs(self, token_ids: Tensor, action_mask: Tensor) -> Tensor:
        """Log-probability of each sampled token given what stands before it, [B, T].

        0 where ``action_mask`` is False. The head is applied to the sampled positions only: with
        a large vocabulary the logits of all positions would not fit.
        """
        # Right-padding needs no attention mask: with causal attention no token sees what follows.
        rows, columns = action_mask.nonzero(as_tuple=True)
        before = (rows, columns - 1)
        if self._is_split:
            states = self.model.base_model(input_ids=token_ids, use_cache=False).last_hidden_state
            logits = self.model.get_output_embeddings()(states[before])
        else:
            logits = self.model(input_ids=token_ids, use_cache=False).logits[before]
        logits = logits.float() / self.temperature
        chosen = logits.gather(-1, token_ids[rows, columns].unsqueeze(-1)).squeeze(-1)
        scores = chosen - logits.logsumexp(-1)
        return torch.zeros(token_ids.shape, device=scores.device).index_put((rows, columns), scores)


@torch.no_grad()
def _is_body_and_head(model: Any) -> bool:
    """Whether the logits are the head applied to the body's last state, with nothing between.

    Some architectures scale or cap their logits; those are scored by the whole model.
    """
    probe = torch.arange(PROBE_TOKENS, device=model.device).unsqueeze(0)
    whole = model(input_ids=probe, use_cache=False).logits
    states = model.base_model(input_ids=probe, use_cache=False).last_hidden_state
    return torch.allclose(model.get_output_embeddings()(states), whole, rtol=1e-3, atol=1e-3)
