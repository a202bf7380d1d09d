import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lagoon.evolution import noise_seed, update_norm_law
from lagoon.methods.es import ES
from workers.perturbation import add_update_, noise, perturbed, sum_of_squares

GOLDEN = Path(__file__).parent.parent / "golden"
ESOPT = json.loads((GOLDEN / "es_update.json").read_text())["cases"]
AT_SCALE = json.loads((GOLDEN / "es_at_scale_update.json").read_text())["cases"]
ONE_UPDATE = [case for case in ESOPT if "weights" in case["expected"]]
REPLAY = [case for case in ESOPT if "history" in case["inputs"]]
NAMES = [case for case in ESOPT if "tensor_id" in case["expected"]]
ONE_BFLOAT16_UNIT = 2.0**-7


def parameters(case: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors that the case perturbs."""
    inputs = case["inputs"]
    dtype = getattr(torch, inputs["dtype"])
    names = inputs.get("tensor_ids", inputs["parameters"])
    return {name: torch.tensor(inputs["parameters"][name], dtype=dtype) for name in names}


def assert_close(ours: dict[str, Tensor], wanted: dict[str, Any]) -> None:
    for name, tensor in ours.items():
        exact = tensor.dtype == torch.float32
        torch.testing.assert_close(
            tensor.float(),
            torch.tensor(wanted[name], dtype=torch.float32),
            atol=1e-6,
            rtol=0 if exact else ONE_BFLOAT16_UNIT,
        )


@pytest.mark.parametrize("case", ONE_UPDATE)
def test_perturbing_and_updating_agree_with_the_published_code(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    ours = parameters(case)
    moved = dict(perturbed(ours, inputs["seeds"][0], inputs["sigma"], "per_tensor"))
    assert_close(moved, expected["perturbed_seed0"])
    ours = {
        name: torch.tensor(expected["parameters_before_update"][name], dtype=tensor.dtype)
        for name, tensor in ours.items()
    }
    coefficients = ES().coefficients(inputs["rewards"], inputs["alpha"])
    add_update_(ours, inputs["seeds"], coefficients, "per_tensor")
    assert_close(ours, expected["parameters_after_update"])


@pytest.mark.parametrize("case", REPLAY)
def test_replaying_a_history_of_seeds_agrees_with_the_published_code(case: dict[str, Any]) -> None:
    ours = parameters(case)
    for entry in case["inputs"]["history"]:
        coefficients = ES().coefficients(entry["rewards"], entry["alpha"])
        add_update_(ours, entry["seeds"], coefficients, "per_tensor")
    assert_close(ours, case["expected"]["parameters_replayed_on_fresh_model"])


@pytest.mark.parametrize("case", NAMES)
def test_noise_seeds_agree_with_the_published_code(case: dict[str, Any]) -> None:
    mixed = noise_seed(case["inputs"]["seed"], case["inputs"]["name"])
    assert str(mixed) == case["expected"]["mixed"]


@pytest.mark.parametrize("case", AT_SCALE)
def test_the_reference_key_agrees_with_the_published_code(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    ours = parameters(case)
    moved = dict(perturbed(ours, inputs["seeds"][0], inputs["sigma"], "reference_compatible"))
    assert_close(moved, expected["perturbed_seed0"])
    scale = inputs["alpha"] / inputs["population"]
    coefficients = [scale * weight for weight in inputs["coefficients"]]
    add_update_(ours, inputs["seeds"], coefficients, "reference_compatible")
    assert_close(ours, expected["parameters_after_update"])


@pytest.mark.parametrize("case", [case for case in ESOPT if "noise" in case["inputs"]])
def test_noise_is_bit_for_bit_that_of_the_published_code(case: dict[str, Any]) -> None:
    for seed, tensors in case["inputs"]["noise"].items():
        for name, values in tensors.items():
            wanted = torch.tensor(values)
            assert torch.equal(noise(name, wanted.shape, int(seed), "per_tensor"), wanted)


def model() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {f"layers.{i}.weight": torch.randn(64, 48) * 0.02 for i in range(4)}


def test_perturbing_leaves_the_master_bit_for_bit_as_it_was() -> None:
    master = model()
    before = {name: tensor.clone() for name, tensor in master.items()}
    for seed in range(30):
        assert not torch.equal(
            dict(perturbed(master, seed, 1e-3, "per_tensor"))["layers.0.weight"],
            before["layers.0.weight"],
        )
    assert all(torch.equal(master[name], before[name]) for name in master)


def test_tensors_of_one_shape_get_independent_noise() -> None:
    shape = (64, 48)
    first, second = (noise(name, shape, 9, "per_tensor").flatten() for name in ("a", "b"))
    correlation = torch.corrcoef(torch.stack([first, second]))[0, 1]
    assert abs(float(correlation)) < 4 / (64 * 48) ** 0.5


def test_tensors_of_one_shape_share_their_noise_in_reference_mode() -> None:
    first, second = (noise(name, (64, 48), 9, "reference_compatible") for name in ("a", "b"))
    assert torch.equal(first, second)


def test_the_norm_of_an_update_follows_its_law() -> None:
    alpha, population, trials = 5e-4, 30, 20
    master = model()
    count = sum(tensor.numel() for tensor in master.values())
    squares = 0.0
    for trial in range(trials):
        torch.manual_seed(trial)
        coefficients = ES().coefficients(torch.randn(population).tolist(), alpha)
        seeds = range(trial * population, (trial + 1) * population)
        squares += add_update_(master, seeds, coefficients, "per_tensor") ** 2
    law = update_norm_law(alpha, count, population)
    assert (squares / trials) ** 0.5 == pytest.approx(law, rel=0.01)


def test_the_reported_norm_is_that_of_the_change() -> None:
    master = model()
    before = {name: tensor.clone() for name, tensor in master.items()}
    norm = add_update_(master, [1, 2], [1e-3, -2e-3], "per_tensor")
    squares = sum(sum_of_squares(master[name] - before[name]) for name in master)
    assert norm == pytest.approx(squares**0.5, rel=1e-4)


def test_equal_fitness_changes_not_one_bit() -> None:
    master = {"w": torch.tensor([0.0, -0.0, 1e-30, 3.0])}
    coefficients = ES().coefficients([0.7] * 8, 5e-4)
    assert add_update_(master, range(8), coefficients, "per_tensor") == 0.0
    bits = master["w"].view(torch.int32)
    assert torch.equal(bits, torch.tensor([0.0, -0.0, 1e-30, 3.0]).view(torch.int32))


REPLAYING = """
import hashlib, torch
from tests.workers.test_perturbation import model
from workers.perturbation import add_update_
master = model()
for generation in range(3):
    seeds = [generation * 10 + member for member in range(8)]
    add_update_(master, seeds, [(m - 4) * 1e-4 for m in range(8)], "per_tensor")
digest = hashlib.sha256()
for name in sorted(master):
    digest.update(master[name].numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_replaying_seeds_in_another_process_gives_the_same_bits(threads: int) -> None:
    one, other = (
        subprocess.run(
            [sys.executable, "-c", f"import torch; torch.set_num_threads({count})\n{REPLAYING}"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        ).stdout
        for count in (1, threads)
    )
    assert len(one.strip()) == 64
    assert one == other
