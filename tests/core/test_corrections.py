import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lagoon.corrections import (
    CORRECTIONS,
    Band,
    CorrectionName,
    corrected_surrogate,
)
from lagoon.losses import Loss, TokenBatch, clipped_surrogate
from lagoon.metrics import CLIPPED, MASKED
from tests.core.golden import tensor

NAMES: tuple[CorrectionName, ...] = get_args(CorrectionName)
RATIOS = [0.1, 1.0, 3.0, 10.0]
TABLE = {
    # What methods.md 14.8 says of these ratios, for A > 0 and for A < 0.
    "none": ([1, 1, 1, 1], [1, 1, 1, 1]),
    "clip": ([0.1, 1, 0, 0], [0, 1, 3, 10]),
    "tis": ([0.1, 1, 2, 2], [0.1, 1, 2, 2]),
    "icepop": ([0, 1, 3, 0], [0, 1, 3, 0]),
    "dis": ([0, 1, 3, 0], [0, 1, 3, 0]),
    "cispo": ([0.1, 1, 3, 5], [0.1, 1, 3, 5]),
    # The proximal policy is the behavior policy, and then the trajectory is one token long.
    "decoupled": ([0.1, 1, 0, 0], [0, 1, 3, 10]),
    "geometric": ([0, 1, 0, 0], [0, 1, 0, 0]),
}


def batch_of(
    logprobs: torch.Tensor,
    behavior: torch.Tensor,
    advantages: torch.Tensor | float = 1.0,
    *,
    mask: torch.Tensor | None = None,
    proximal: torch.Tensor | None = None,
    trajectories: torch.Tensor | None = None,
) -> TokenBatch:
    ones = torch.ones_like(behavior)
    return TokenBatch(
        logprobs,
        behavior,
        advantages * ones,
        ones if mask is None else mask,
        proximal_logprobs=behavior if proximal is None else proximal,
        trajectories=torch.arange(ones.numel()).reshape(ones.shape)
        if trajectories is None
        else trajectories,
    )


def of_ratios(ratios: list[float], advantage: float = 1.0) -> TokenBatch:
    behavior = torch.full((1, len(ratios)), -3.0, dtype=torch.float64)
    logprobs = (behavior + tensor([ratios]).log()).requires_grad_()
    return batch_of(logprobs, behavior, advantage)


def corrected(name: CorrectionName, batch: TokenBatch, **bounds: float) -> Loss:
    correction = CORRECTIONS[name]
    return corrected_surrogate(batch, correction, correction.band(**bounds))


def gradient(loss: Loss, batch: TokenBatch) -> torch.Tensor:
    (found,) = torch.autograd.grad(loss.value, batch.logprobs)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_the_table_for_both_signs(name: CorrectionName) -> None:
    for sign, expected in zip((1.0, -1.0), TABLE[name], strict=True):
        batch = of_ratios(RATIOS, sign)
        loss = corrected(name, batch)
        assert loss.importance is not None
        assert loss.importance.values[0].tolist() == pytest.approx(expected)
        assert (-gradient(loss, batch) * sign)[0].tolist() == pytest.approx(expected)
        assert not loss.importance.values.requires_grad


@given(st.sampled_from(NAMES), st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_on_policy_every_correction_is_plain_reinforce(
    name: CorrectionName, advantages: list[float]
) -> None:
    logprobs = torch.full((1, len(advantages)), -1.5, dtype=torch.float64, requires_grad=True)
    batch = batch_of(logprobs, logprobs.detach(), tensor([advantages]))
    loss = corrected(name, batch)
    assert torch.equal(-gradient(loss, batch), tensor([advantages]))
    assert loss.value.item() == pytest.approx(-sum(advantages))
    assert loss.metrics == {CLIPPED: (0.0, len(advantages)), MASKED: (0.0, len(advantages))}


@given(
    st.sampled_from(NAMES),
    st.lists(
        st.tuples(st.floats(-700, 700), st.floats(-700, 700)),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([-1.0, 1.0]),
)
def test_weights_are_finite_never_negative_and_cut_on_one_side(
    name: CorrectionName, log_ratios: list[tuple[float, float]], sign: float
) -> None:
    current, proximal = (tensor([list(part)]) for part in zip(*log_ratios, strict=True))
    behavior = torch.full_like(current, -3.0)
    batch = batch_of(behavior + current, behavior, sign, proximal=behavior + proximal)
    loss = corrected(name, batch)
    assert loss.importance is not None
    values = loss.importance.values
    assert bool((values.isfinite() & (values >= 0)).all())
    assert not bool((loss.importance.below & loss.importance.above).any())
    assert not bool((loss.importance.is_masked & ~loss.importance.is_cut).any())


def test_a_decoupled_weight_is_capped_and_clipped_apart() -> None:
    """Ratios of proximal over behavior, and of current over proximal, each out on its own."""
    lag, trust = tensor([[9.0, 9.0, 0.5, 0.5]]), tensor([[1.0, 0.5, 0.5, 1.0]])
    behavior = torch.full_like(lag, -9.0)
    proximal = behavior + lag.log()
    batch = batch_of(proximal + trust.log(), behavior, -1.0, proximal=proximal)
    importance = corrected("decoupled", batch, cap=4.0).importance
    assert importance is not None
    assert importance.values[0].tolist() == pytest.approx([4.0, 0.0, 0.0, 0.5])
    assert importance.above[0].tolist() == [True, False, False, False]
    assert importance.below[0].tolist() == [False, True, True, False]
    assert importance.is_masked[0].tolist() == [False, True, True, False]


def test_a_masked_token_has_no_gradient_at_all_and_counts_in_the_divisor() -> None:
    batch = of_ratios([0.7, 0.8, 2.0, 6.1])
    loss = corrected("dis", batch)
    assert gradient(loss, batch)[0].tolist() == pytest.approx([0.0, -0.8, -2.0, 0.0])
    assert loss.metrics == {CLIPPED: (2.0, 4.0), MASKED: (2.0, 4.0)}
    assert loss.importance is not None
    assert loss.importance.below[0].tolist() == [True, False, False, False]
    assert loss.importance.above[0].tolist() == [False, False, False, True]


def test_the_clipped_ratio_has_the_gradient_of_the_clipped_surrogate() -> None:
    generator = torch.Generator().manual_seed(3)
    behavior = torch.randn(4, 6, generator=generator, dtype=torch.float64) - 2
    shift = 0.4 * torch.randn(4, 6, generator=generator, dtype=torch.float64)
    advantages = torch.randn(4, 1, generator=generator, dtype=torch.float64)
    batch = batch_of((behavior + shift).requires_grad_(), behavior, advantages)
    ours = gradient(corrected("clip", batch), batch)
    theirs = gradient(clipped_surrogate(batch, clip_low=0.2, clip_high=0.2), batch)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_split_between_trajectories_has_the_same_gradient(name: CorrectionName) -> None:
    generator = torch.Generator().manual_seed(5)
    behavior, shift, proximal = (
        torch.randn(4, 6, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    rows = torch.arange(4)[:, None].expand(4, 6)
    logprobs = (behavior + shift / 4).requires_grad_()
    parts = [slice(0, 4), slice(0, 1), slice(1, 4)]
    whole, *split = (
        corrected(
            name,
            batch_of(
                logprobs[part],
                behavior[part],
                shift[part],
                proximal=(behavior + proximal / 4)[part],
                trajectories=rows[part] - part.start,
            ),
        ).value
        for part in parts
    )
    (expected,) = torch.autograd.grad(whole, logprobs, retain_graph=True)
    (found,) = torch.autograd.grad(split[0] + split[1], logprobs)
    torch.testing.assert_close(found, expected)


def test_tokens_that_are_not_trained_on_are_not_counted_as_cut() -> None:
    batch = of_ratios([10.0, 10.0])
    half = TokenBatch(
        batch.logprobs, batch.behavior_logprobs, batch.advantages, tensor([[1.0, 0.0]])
    )
    assert corrected("icepop", half).metrics[MASKED] == (1.0, 1.0)


def test_the_geometric_mask_judges_each_trajectory_of_a_shared_row_by_itself() -> None:
    log_ratios = tensor([[0.3, -0.3, 9.0, 0.5, 0.1]])
    behavior = torch.full_like(log_ratios, -2.0)
    batch = batch_of(
        behavior + log_ratios,
        behavior,
        mask=tensor([[1, 1, 0, 1, 1]]),
        trajectories=torch.tensor([[0, 0, 0, 1, 1]]),
    )
    loss = corrected("geometric", batch)
    assert loss.importance is not None
    kept = loss.importance.values[0] * batch.weights[0]
    assert kept.tolist() == pytest.approx([math.exp(0.3), math.exp(-0.3), 0, 0, 0])
    assert loss.metrics[MASKED] == (2.0, 4.0)


def test_every_name_has_a_correction() -> None:
    assert set(CORRECTIONS) == set(NAMES)


def test_what_a_correction_needs_is_declared_and_its_lack_is_refused() -> None:
    needing = {name for name in NAMES if CORRECTIONS[name].needs_proximal}
    assert needing == {"decoupled"}
    assert {name for name in NAMES if not CORRECTIONS[name].needs_behavior} == {"none"}
    zeros = torch.zeros(1, 2, dtype=torch.float64)
    bare = TokenBatch(zeros, zeros, zeros, zeros + 1)
    for name in NAMES:
        if name in ("decoupled", "geometric"):
            with pytest.raises(ValueError, match="the batch"):
                corrected(name, bare)
        else:
            corrected(name, bare)


def test_a_bound_without_effect_and_a_band_without_the_ratio_one_are_refused() -> None:
    assert CORRECTIONS["tis"].without_effect(low=0.5, high=3.0, cap=None) == ["low"]
    with pytest.raises(ValueError, match="truncated importance sampling has no bound 'low'"):
        CORRECTIONS["tis"].band(low=0.5)
    assert CORRECTIONS["dis"].band(low=0.2, high=None) == Band(0.2, 6.0)
    for low, high in ((1.0, 2.0), (0.5, 1.0), (-0.1, 2.0), (math.nan, 2.0)):
        with pytest.raises(ValueError, match="must hold the ratio 1"):
            Band(low, high)
