import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lagoon.drift import drift
from lagoon.metrics import ENTROPY, GRAD_NORM, LEARNING_RATE, LOSS
from lagoon.trajectory import TrainingSample, Trajectory
from tests.builders import es_config, grpo_config
from tests.workers.models_for_tests import VOCABULARY, build_model
from workers.actors.trainer import TrainerActor
from workers.payload import checksum
from workers.policy import ENTROPY_ROWS, Policy, entropies, shares_prompts
from workers.step_report import Sums, add
from workers.training import NonFiniteGradient, Trainer


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model"))


def trainer(folder: Path, **sections: Any) -> Trainer:
    return Trainer(folder, grpo_config(**sections))


def samples(
    *, num: int = 6, advantages: tuple[float, ...] = (1.0, -0.5, 0.25), seed: int = 0
) -> list[TrainingSample]:
    """Random trajectories of several turns and different lengths."""
    random = np.random.default_rng(seed)
    made = []
    for index in range(num):
        length = int(random.integers(8, 60))
        mask = [int(position > 3 and position % 7 < 4) for position in range(length)]
        trajectory = Trajectory(
            trajectory_id=str(index),
            prompt_id="p",
            split="train",
            token_ids=tuple(int(t) for t in random.integers(3, len(VOCABULARY), length)),
            action_mask=tuple(mask),
            behavior_logprobs=(-1.0,) * length,
            versions=(0,) * length,
            completed_version=0,
            reward=0.0,
            success=False,
        )
        made.append(TrainingSample(trajectory, advantages[index % len(advantages)], 0.0))
    total = sum(sample.trajectory.num_actions for sample in made)
    return [replace(sample, token_weight=1.0 / total) for sample in made]


def groups() -> list[TrainingSample]:
    """Three groups of four; the trajectories of each start with the same long prompt."""
    made, prompt_length = samples(num=12, seed=1), 30
    for index, sample in enumerate(made):
        own = sample.trajectory
        prompt = tuple(
            int(t) for t in np.random.default_rng(index // 4).integers(3, 9, prompt_length)
        )
        made[index] = replace(
            sample,
            trajectory=replace(
                own,
                token_ids=prompt + own.token_ids[7:15],
                action_mask=(0,) * prompt_length + own.action_mask[7:15],
                behavior_logprobs=(-1.0,) * (prompt_length + len(own.token_ids[7:15])),
                versions=(0,) * (prompt_length + len(own.token_ids[7:15])),
            ),
        )
    return made


def on_policy(trainer: Trainer, given: list[TrainingSample]) -> list[TrainingSample]:
    """The same samples with behavior log-probabilities of the trainer's present weights."""
    made = []
    for sample, scores in zip(given, trainer.logprobs(given), strict=True):
        behavior = [0.0] * len(sample.trajectory.token_ids)
        places = [i for i, action in enumerate(sample.trajectory.action_mask) if action]
        for place, score in zip(places, scores, strict=True):
            behavior[place] = score
        trajectory = replace(sample.trajectory, behavior_logprobs=tuple(behavior))
        made.append(replace(sample, trajectory=trajectory))
    return made


def longhand_logprobs(model: Any, sample: TrainingSample, temperature: float) -> list[torch.Tensor]:
    ids = torch.tensor([sample.trajectory.token_ids])
    table = (model(ids).logits[0] / temperature).log_softmax(-1)
    return [
        table[place - 1, token]
        for place, (token, action) in enumerate(
            zip(sample.trajectory.token_ids, sample.trajectory.action_mask, strict=True)
        )
        if action
    ]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_distribution_sampled_from(
    model_folder: Path, temperature: float
) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    given = samples()
    ours = trainer(model_folder, rollout={"temperature": temperature}).logprobs(given)
    for sample, scores in zip(given, ours, strict=True):
        with torch.no_grad():
            wanted = [float(x) for x in longhand_logprobs(model, sample, temperature)]
        assert scores == pytest.approx(wanted, abs=1e-5)


def test_the_on_policy_gradient_is_the_mean_of_advantage_times_grad_log_policy(
    model_folder: Path,
) -> None:
    ours = trainer(model_folder)
    given = on_policy(ours, samples())
    for batch in ours._micro_batches(given):
        ours._accumulate(batch)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    total = sum(sample.trajectory.num_actions for sample in given)
    value = sum(
        sample.advantage * torch.stack(longhand_logprobs(model, sample, 1.0)).sum()
        for sample in given
    )
    (-value / total).backward()
    wanted = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, parameter in ours._policy.model.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], atol=1e-6, rtol=1e-4)


def test_cutting_into_micro_batches_changes_nothing(model_folder: Path) -> None:
    whole = trainer(model_folder)
    cut = trainer(model_folder, trainer={"microbatch_tokens": 64})
    given = on_policy(whole, samples(num=9))
    assert len(list(cut._micro_batches(given))) > 4
    for ours in (whole, cut):
        for batch in ours._micro_batches(given):
            ours._accumulate(batch)
    pairs = zip(whole._policy.model.parameters(), cut._policy.model.parameters(), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one.grad, other.grad, atol=1e-7, rtol=1e-4)


def test_trajectories_behind_one_prompt_score_as_they_do_alone(model_folder: Path) -> None:
    ours = trainer(model_folder, rollout={"temperature": 0.7})
    given = [*groups(), *samples(num=3, seed=5)]
    rows = [row for batch in ours._micro_batches(given) for row in batch.rows]
    assert [len(row.placed) for row in rows].count(4) == 3
    assert len(rows) == 6
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    for sample, scores in zip(given, ours.logprobs(given), strict=True):
        with torch.no_grad():
            wanted = [float(x) for x in longhand_logprobs(model, sample, 0.7)]
        assert scores == pytest.approx(wanted, abs=1e-5)


def test_sharing_prompts_changes_neither_gradient_nor_metrics(model_folder: Path) -> None:
    method = {"name": "grpo", "num_prompts": 2, "group_size": 2, "kl_coefficient": 0.1}
    shared, apart = (trainer(model_folder, method=method) for _ in range(2))
    apart._policy.shares_prompts = False
    given = on_policy(apart, [*groups(), *samples(num=3, seed=5)])
    assert sum(len(batch.rows) for batch in apart._micro_batches(given)) == 15
    sums: list[Sums] = [{}, {}]
    for place, ours in enumerate((shared, apart)):
        for batch in ours._micro_batches(given):
            add(sums[place], ours._accumulate(batch)[0])
        sums[place][LOSS] = (sums[place][LOSS][0], 1.0)  # a sum over the whole batch
    assert sums[0].keys() == sums[1].keys()
    for metric, pair in sums[0].items():
        assert pair == pytest.approx(sums[1][metric], rel=1e-4, abs=1e-5), metric
    pairs = zip(shared._policy.model.parameters(), apart._policy.model.parameters(), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"use_sliding_window": True, "sliding_window": 16},
        {"layer_types": ["full_attention", "chunked_attention"]},
        {"window_size": 256},
    ],
)
def test_a_model_with_windows_of_attention_does_not_share_prompts(
    model_folder: Path, settings: dict[str, Any]
) -> None:
    ours = trainer(model_folder)
    assert ours._policy.shares_prompts
    for name, value in settings.items():
        setattr(ours._policy.model.config, name, value)
    assert not shares_prompts(ours._policy.model)


def test_a_model_that_takes_no_table_trains_row_by_row(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trainer(model_folder)._policy.model
    forward = model.base_model.forward

    def refuses(**given: Any) -> Any:
        if given.get("attention_mask") is not None:
            raise ValueError("too many values to unpack")
        return forward(**given)

    monkeypatch.setattr(model.base_model, "forward", refuses)
    assert Policy(model, 1.0).shares_prompts is False
    model.set_attn_implementation("eager")
    assert Policy(model, 1.0).shares_prompts is False


def test_a_model_in_bfloat16_shares_prompts_too(model_folder: Path) -> None:
    assert trainer(model_folder, model={"dtype": "bfloat16"})._policy.shares_prompts


def test_a_step_moves_the_policy_towards_what_had_an_advantage(model_folder: Path) -> None:
    ours = trainer(model_folder)
    given = on_policy(ours, samples())
    report = ours.step(given, 1e-3)
    sums = report.sums
    after = on_policy(ours, given)
    gain = sum(
        sample.advantage
        * (sum(after[i].trajectory.behavior_logprobs) - sum(sample.trajectory.behavior_logprobs))
        for i, sample in enumerate(given)
    )
    assert gain > 0
    assert ours.version == 1
    assert sums[LEARNING_RATE.name] == (1e-3, 1.0)
    assert sums[GRAD_NORM.name][0] > 0
    count = sum(sample.trajectory.num_actions for sample in given)
    assert sums[ENTROPY.name][1] == count
    found = drift([sample.trajectory for sample in given], report.scores, 0)
    assert found.mismatch is not None
    assert found.lag is None
    assert found.mismatch.num_tokens == count
    assert found.mismatch.logprob_abs == pytest.approx(0, abs=1e-5)
    assert sums[LOSS.name][0] == pytest.approx(
        -sum(s.advantage * s.token_weight * s.trajectory.num_actions for s in given), rel=1e-4
    )


def test_entropy_is_that_of_the_distributions_whatever_was_drawn_from_them(
    model_folder: Path,
) -> None:
    ours, given = trainer(model_folder), samples()
    total, count = ours.step(given, 0.0).sums[ENTROPY.name]
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    found = []
    for sample in given:
        made = sample.trajectory
        with torch.no_grad():
            logits = model(torch.tensor([made.token_ids])).logits[0, :-1]
        drawn = torch.tensor(made.action_mask[1:], dtype=torch.bool)
        found += torch.distributions.Categorical(logits=logits[drawn]).entropy().tolist()
    assert count == len(found)
    assert total == pytest.approx(sum(found), rel=1e-4)


def test_entropy_of_what_cannot_be_drawn_is_nothing_and_rows_do_not_mix() -> None:
    certain = [0.0, -math.inf, -math.inf, -math.inf]
    found = entropies(torch.tensor([certain, [0.5] * 4] * ENTROPY_ROWS))
    assert found.tolist() == pytest.approx([0.0, math.log(4)] * ENTROPY_ROWS)


def test_stale_tokens_do_not_count_as_mismatch(model_folder: Path) -> None:
    ours = trainer(model_folder)
    given = samples()
    ours.step(given, 1e-4)
    found = drift([sample.trajectory for sample in given], ours.step(given, 1e-4).scores, 1)
    assert found.mismatch is None
    assert found.lag is not None
    assert found.lag.kl > 0


def test_the_same_seed_and_samples_give_the_same_weights(model_folder: Path) -> None:
    digests = set()
    for _ in range(2):
        ours = trainer(model_folder)
        for _ in range(3):
            ours.step(samples(), 1e-3)
        digests.add(ours.weights()[1])
    assert len(digests) == 1


def test_a_gradient_that_is_not_finite_is_refused_and_changes_nothing(model_folder: Path) -> None:
    ours = trainer(model_folder)
    before = ours.weights()[1]
    bad = [replace(sample, advantage=math.nan) for sample in samples()]
    with pytest.raises(NonFiniteGradient, match="step 1 is nan: the step was refused"):
        ours.step(bad, 1e-3)
    assert ours.weights()[1] == before
    assert ours.version == 0
    ours.step(samples(), 1e-3)
    assert np.isfinite(ours.weights()[0]["model.norm.weight"]).all()


def test_long_gradients_are_scaled_down(model_folder: Path) -> None:
    ours = trainer(model_folder, trainer={"max_grad_norm": 1e-3, "beta1": 0.0, "beta2": 0.0})
    big = [replace(sample, advantage=1e6) for sample in samples()]
    assert ours.step(big, 0.0).sums[GRAD_NORM.name][0] > 1.0


def test_the_initial_policy_is_its_own_reference(model_folder: Path) -> None:
    ours = trainer(
        model_folder,
        method={"name": "grpo", "num_prompts": 2, "group_size": 2, "kl_coefficient": 0.1},
    )
    given = on_policy(ours, samples())
    first, second = (ours.step(given, 1e-2).sums["trainer/kl_reference"] for _ in range(2))
    assert first[0] == pytest.approx(0, abs=1e-4)
    assert second[0] > first[0]


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_folder_holds_the_weights_that_were_published(tmp_path: Path, tied: bool) -> None:
    folder = build_model(tmp_path / "model", tied=tied)
    ours = trainer(folder)
    ours.step(samples(), 1e-3)
    ours.save(tmp_path / "saved")
    weights, digest = ours.weights()
    assert digest == checksum(weights)
    assert ("lm_head.weight" in weights) is not tied
    again = trainer(tmp_path / "saved")
    assert again.weights()[1] == digest
    prompt = "1+2=?"
    one, other = (AutoTokenizer.from_pretrained(f) for f in (folder, tmp_path / "saved"))
    assert one.encode(prompt) == other.encode(prompt)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "saved"]


def test_weights_are_a_copy(model_folder: Path) -> None:
    ours = trainer(model_folder)
    weights, digest = ours.weights()
    ours.step(samples(), 1e-2)
    assert checksum(weights) == digest != ours.weights()[1]


def test_a_bfloat16_model_keeps_what_is_smaller_than_its_number_format(model_folder: Path) -> None:
    ours = trainer(model_folder, model={"dtype": "bfloat16"})
    masters = [master.detach().clone() for master in ours._optimizer._masters]
    for _ in range(2):
        ours.step(samples(), 1e-6)
    assert any(
        not torch.equal(before, after)
        for before, after in zip(masters, ours._optimizer._masters, strict=True)
    )
    weights, _ = ours.weights()
    assert {array.dtype for array in weights.values()} == {np.dtype(np.uint16)}


def test_methods_without_gradients_have_no_trainer(model_folder: Path) -> None:
    with pytest.raises(TypeError, match="takes no gradient steps"):
        Trainer(model_folder, es_config())


def test_the_actor_is_the_trainer_once_it_is_ready(model_folder: Path, tmp_path: Path) -> None:
    actor = TrainerActor(str(model_folder), grpo_config().model_dump(mode="json"), 1)
    with pytest.raises(RuntimeError, match="call ready"):
        actor.weights()
    actor.ready()
    given = samples()
    ours = trainer(model_folder)
    assert actor.logprobs(given) == ours.logprobs(given)
    assert actor.step(given, 1e-3) == ours.step(given, 1e-3)
    assert actor.weights()[1] == ours.weights()[1]
    actor.save(str(tmp_path / "saved"))
    assert trainer(tmp_path / "saved").weights()[1] == ours.weights()[1]


def test_importing_the_actors_loads_neither_torch_nor_vllm() -> None:
    code = (
        "import sys, workers.actors.generator, workers.actors.trainer\n"
        "print([m for m in ('torch', 'vllm', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
