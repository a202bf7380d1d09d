import pytest
import torch

from workers.models.muon import Muon, orthogonalized


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 48)])
def test_singular_values_are_pushed_to_about_one_and_directions_kept(
    shape: tuple[int, int],
) -> None:
    random = torch.Generator().manual_seed(0)
    matrix = torch.randn(shape, generator=random)
    found = orthogonalized(matrix[None])[0]
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.T @ found @ right.T  # diagonal where the singular vectors are the same
    assert torch.allclose(inside, torch.diag(inside.diagonal()), atol=1e-4)
    assert inside.diagonal().min() > 0.5
    assert inside.diagonal().max() < 1.5


def test_a_quadratic_is_descended() -> None:
    random = torch.Generator().manual_seed(0)
    target = torch.randn(8, 8, generator=random)
    matrix = torch.nn.Parameter(torch.zeros(8, 8))
    optimizer = Muon([matrix])
    first = float((matrix - target).square().sum().detach())
    for step in range(200):
        loss = (matrix - target).square().sum()
        torch.autograd.backward(loss)
        optimizer.step(0.05 * (1 - step / 200))
        assert matrix.grad is None
    assert float(loss.detach()) < 0.02 * first


def test_equal_shapes_that_are_stacked_move_as_they_would_alone() -> None:
    random = torch.Generator().manual_seed(0)
    gradients = [torch.randn(4, 6, generator=random) for _ in range(2)]
    together = [torch.nn.Parameter(torch.ones(4, 6)) for _ in range(2)]
    alone = [torch.nn.Parameter(torch.ones(4, 6)) for _ in range(2)]
    optimizer = Muon(together)
    for matrix, gradient in zip(together, gradients, strict=True):
        matrix.grad = gradient.clone()
    optimizer.step(0.1)
    for matrix, gradient in zip(alone, gradients, strict=True):
        matrix.grad = gradient.clone()
        Muon([matrix]).step(0.1)
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other)
