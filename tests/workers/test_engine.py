"""One real vLLM engine for the whole file: a start costs more than all the tests."""

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio
import torch
from transformers import AutoModelForCausalLM

from tests.builders import es_config, grpo_config
from tests.workers.models_for_tests import END, VOCABULARY, build_model
from workers.engine import VLLMEngine
from workers.engine_settings import EngineSettings, engine_settings
from workers.payload import PAYLOAD, SHARED_MEMORY, Weights, checksum
from workers.perturbation import add_update_, perturbed
from workers.rollout import Sampled

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

LONG_PROMPT = [int(t) for t in np.random.default_rng(0).integers(3, len(VOCABULARY), 400)]
"""Longer than twelve of the CPU cache's blocks of 32 tokens."""
VERSIONS = itertools.count(1)
SETTINGS = EngineSettings(
    dtype="float32",
    max_length_tokens=512,
    max_concurrent=32,
    kv_cache_gib=0.25,
    threads=1,
    on_cpu=True,
    seed=0,
    keep_master=True,
)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build_model(tmp_path_factory.mktemp("model"))
    own = {"do_sample": True, "temperature": 0.1, "top_k": 2, "top_p": 0.5, "max_new_tokens": 3}
    (folder / "generation_config.json").write_text(json.dumps(own))
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(model_folder: Path) -> AsyncIterator[VLLMEngine]:
    started = await VLLMEngine.start(model_folder, SETTINGS)
    yield started
    started.shutdown()


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def other_model(tmp_path: Path, seed: int) -> Any:
    return load(build_model(tmp_path / "other", seed=seed))


def weights_of(model: Any) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


def scores(model: Any, prompt: list[int], sampled: Sampled, temperature: float = 1.0) -> np.ndarray:
    """The trainer's log-probabilities of the sampled tokens."""
    ids = prompt + sampled.token_ids
    with torch.no_grad():
        table = (model(torch.tensor([ids])).logits[0] / temperature).log_softmax(-1)
    return np.array([float(table[at - 1, ids[at]]) for at in range(len(prompt), len(ids))])


async def sample(
    engine: VLLMEngine,
    prompt: list[int],
    *,
    max_tokens: int = 24,
    temperature: float = 1.0,
    stop: tuple[int, ...] = (),
) -> Sampled:
    return await engine.sample(
        prompt, max_tokens=max_tokens, temperature=temperature, stop_token_ids=list(stop)
    )


def distance(sampled: Sampled, wanted: np.ndarray) -> float:
    return float(np.abs(np.array(sampled.logprobs) - wanted).max())


async def test_the_first_weights_are_version_0_and_the_model_folders(
    engine: VLLMEngine, model_folder: Path
) -> None:
    sampled = await sample(engine, LONG_PROMPT)
    assert sampled.versions == [0] * 24
    assert sampled.finish == "length"
    assert distance(sampled, scores(load(model_folder), LONG_PROMPT, sampled)) < 1e-5


async def test_what_a_model_folder_says_of_sampling_is_ignored(engine: VLLMEngine) -> None:
    """Its top-k of 2 would leave two tokens, its most tokens three."""
    sampled = await asyncio.gather(*(sample(engine, [3, 4, 5]) for _ in range(32)))
    assert {len(each.token_ids) for each in sampled} == {24}
    assert len({each.token_ids[0] for each in sampled}) > 2


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.6])
async def test_behavior_logprobs_are_those_of_the_distribution_sampled_from(
    engine: VLLMEngine, tmp_path: Path, temperature: float
) -> None:
    model = other_model(tmp_path, seed=3)
    await engine.publish(next(VERSIONS), weights_of(model))
    differences = []
    for prompt in ([3, 4, 5], LONG_PROMPT, LONG_PROMPT[:200]):
        sampled = await sample(engine, prompt, temperature=temperature)
        wanted = scores(model, prompt, sampled, temperature)
        differences += list(np.abs(np.array(sampled.logprobs) - wanted))
    assert np.mean(differences) < 1e-5


async def test_a_greedy_token_reports_its_logprob_at_temperature_1(
    engine: VLLMEngine, tmp_path: Path
) -> None:
    model = other_model(tmp_path, seed=4)
    await engine.publish(next(VERSIONS), weights_of(model))
    # A sampled request in the same batch must not change how a greedy one is scored.
    greedy, _ = await asyncio.gather(
        sample(engine, LONG_PROMPT, temperature=0.0), sample(engine, LONG_PROMPT, temperature=0.5)
    )
    assert distance(greedy, scores(model, LONG_PROMPT, greedy)) < 1e-5
    with torch.no_grad():
        logits = model(torch.tensor([LONG_PROMPT + greedy.token_ids])).logits[0]
    assert logits[len(LONG_PROMPT) - 1 : -1].argmax(-1).tolist() == greedy.token_ids


async def test_a_stop_token_ends_the_turn_and_belongs_to_it(engine: VLLMEngine) -> None:
    everything = tuple(range(len(VOCABULARY)))
    sampled = await sample(engine, [3, 4], stop=everything)
    assert len(sampled.token_ids) == len(sampled.logprobs) == len(sampled.versions) == 1
    assert sampled.finish == "stop"


async def test_only_the_stop_tokens_that_were_asked_for_end_a_turn(engine: VLLMEngine) -> None:
    turns = await asyncio.gather(*(sample(engine, [3, at], max_tokens=60) for at in range(30)))
    assert any(END in turn.token_ids for turn in turns)
    assert {len(turn.token_ids) for turn in turns} == {60}


async def test_a_publish_reaches_a_prompt_that_was_cached(
    engine: VLLMEngine, tmp_path: Path
) -> None:
    for seed in (5, 6):
        before = await sample(engine, LONG_PROMPT, temperature=0.0)
        model = other_model(tmp_path / str(seed), seed)
        version = next(VERSIONS)
        assert await engine.publish(version, weights_of(model)) == checksum(weights_of(model))
        after = await sample(engine, LONG_PROMPT, temperature=0.0)
        assert after.versions == [version] * 24
        assert distance(after, scores(model, LONG_PROMPT, after)) < 1e-5
        assert distance(before, scores(model, LONG_PROMPT, before)) > 0.1


async def test_a_request_in_flight_continues_with_the_new_weights(
    engine: VLLMEngine, tmp_path: Path
) -> None:
    old, new = (other_model(tmp_path / str(seed), seed) for seed in (7, 8))
    first, second = next(VERSIONS), next(VERSIONS)
    await engine.publish(first, weights_of(old))
    prompts = [[*LONG_PROMPT[:150], 3 + at] for at in range(16)]
    sampling = [asyncio.create_task(sample(engine, p, max_tokens=300)) for p in prompts]
    # Submitted last and answered when the others have sampled about as much, far from their end.
    await asyncio.create_task(sample(engine, prompts[0], max_tokens=16))
    await engine.publish(second, weights_of(new))
    turns = await asyncio.gather(*sampling)
    mixed = [turn for turn in turns if set(turn.versions) == {first, second}]
    assert len(mixed) > 8
    for prompt, turn in zip(prompts, turns, strict=True):
        assert turn.versions == sorted(turn.versions)
        is_old = np.array(turn.versions) == first
        wanted = np.where(is_old, scores(old, prompt, turn), scores(new, prompt, turn))
        assert distance(turn, wanted) < 1e-4


async def test_an_engine_that_is_held_samples_nothing_and_goes_on_with_its_tokens(
    engine: VLLMEngine, tmp_path: Path
) -> None:
    model, version, prompt = other_model(tmp_path, seed=9), next(VERSIONS), LONG_PROMPT[:300]
    await engine.publish(version, weights_of(model))
    alone = await sample(engine, prompt, max_tokens=200, temperature=0.0)
    asked = asyncio.ensure_future(sample(engine, prompt, max_tokens=200, temperature=0.0))
    # Submitted after it and answered: the other has sampled about as much, far from its end.
    await asyncio.create_task(sample(engine, prompt, max_tokens=16))
    assert not asked.done()
    await engine.hold(is_paused=True)
    is_new = asyncio.ensure_future(sample(engine, prompt[:200], max_tokens=1))
    done, _ = await asyncio.wait([asked, is_new], timeout=1)
    assert not done  # one second is far more than both take
    await engine.hold(is_paused=False)
    held = await asked
    assert held.token_ids == alone.token_ids
    assert held.versions == [version] * 200
    assert distance(held, scores(model, prompt, held)) < 1e-4
    assert len((await is_new).token_ids) == 1


async def test_a_request_that_is_cut_goes_on_after_its_tokens(
    engine: VLLMEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_pause_mode", "abort")
    models = [other_model(tmp_path / str(seed), seed) for seed in (21, 22, 23)]
    versions = [next(VERSIONS) for _ in models]
    await engine.publish(versions[0], weights_of(models[0]))
    prompts = [[*LONG_PROMPT[:150], 3 + at] for at in range(16)]
    sampling = [asyncio.create_task(sample(engine, p, max_tokens=300)) for p in prompts]
    for version, model in zip(versions[1:], models[1:], strict=True):
        await asyncio.create_task(sample(engine, prompts[0], max_tokens=16))
        await engine.publish(version, weights_of(model))
    turns = await asyncio.gather(*sampling)
    assert sum(set(turn.versions) == set(versions) for turn in turns) > 8
    for prompt, turn in zip(prompts, turns, strict=True):
        assert len(turn.token_ids) == 300
        assert turn.versions == sorted(turn.versions)
        wanted = np.zeros(300)
        for version, model in zip(versions, models, strict=True):
            of_it = np.array(turn.versions) == version
            wanted = np.where(of_it, scores(model, prompt, turn), wanted)
        assert distance(turn, wanted) < 1e-4


async def test_turns_that_are_given_up_in_mid_sampling_make_room_at_once(
    engine: VLLMEngine,
) -> None:
    """All places are taken by turns of one length, so that without room the next one would wait for
    the one that goes on to end."""

    def long_turn() -> asyncio.Task[Sampled]:
        return asyncio.ensure_future(sample(engine, [3, 4, 5], max_tokens=480))

    turns = [long_turn() for _ in range(SETTINGS.max_batch - 1)]
    await sample(engine, [3, 4, 5], max_tokens=2)  # the last place: all of them are sampling
    goes_on, *unwanted = [*turns, long_turn()]
    for turn in unwanted:
        turn.cancel()
    ended = await asyncio.gather(*unwanted, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)
    next_one = asyncio.ensure_future(sample(engine, [3, 4, 5], max_tokens=4))
    first, _ = await asyncio.wait({goes_on, next_one}, return_when=asyncio.FIRST_COMPLETED)
    assert first == {next_one}
    assert len((await goes_on).token_ids) == 480


async def test_a_publish_leaves_nothing_in_shared_memory(
    engine: VLLMEngine, model_folder: Path
) -> None:
    await engine.publish(next(VERSIONS), weights_of(load(model_folder)))
    assert not list(SHARED_MEMORY.glob(f"{PAYLOAD}-{os.getpid()}-*"))


async def test_weights_of_another_model_are_refused_and_the_engine_goes_on(
    engine: VLLMEngine, model_folder: Path
) -> None:
    weights = weights_of(load(model_folder))
    await engine.publish(next(VERSIONS), weights)
    missing = {name: array for name, array in weights.items() if name != "model.norm.weight"}
    with pytest.raises(ValueError, match=r"1 tensors differ .* first model\.norm\.weight"):
        await engine.publish(next(VERSIONS), missing)
    sampled = await sample(engine, LONG_PROMPT)
    assert distance(sampled, scores(load(model_folder), LONG_PROMPT, sampled)) < 1e-5


def master_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def loaded_with(model: Any, weights: dict[str, torch.Tensor]) -> Any:
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    return model


async def test_a_member_is_the_master_plus_noise_and_leaves_the_master_as_it_was(
    engine: VLLMEngine, tmp_path: Path
) -> None:
    model = other_model(tmp_path, seed=9)
    version = next(VERSIONS)
    await engine.publish(version, weights_of(model))
    master = master_of(model)
    base = await sample(engine, LONG_PROMPT, temperature=0.0)
    for seed in (11, 12):
        await engine.perturb(seed, 0.05, "per_tensor")
        member = await sample(engine, LONG_PROMPT, temperature=0.0)
        moved = loaded_with(model, dict(perturbed(master, seed, 0.05, "per_tensor")))
        assert distance(member, scores(moved, LONG_PROMPT, member)) < 1e-5
        assert member.versions == [version] * 24
        assert member.logprobs != base.logprobs
    await engine.update(next(VERSIONS), [11], [0.0], "per_tensor")
    again = await sample(engine, LONG_PROMPT, temperature=0.0)
    assert (again.token_ids, again.logprobs) == (base.token_ids, base.logprobs)


async def test_an_update_moves_the_master_by_the_weighted_noise(
    engine: VLLMEngine, tmp_path: Path, model_folder: Path
) -> None:
    model = other_model(tmp_path, seed=10)
    await engine.publish(next(VERSIONS), weights_of(model))
    master, start = master_of(model), master_of(load(model_folder))
    for seeds, coefficients in (([1, 2, 3], [0.01, -0.02, 0.005]), ([4, 5], [0.01, 0.0])):
        version = next(VERSIONS)
        report = await engine.update(version, seeds, coefficients, "per_tensor")
        norm = add_update_(master, seeds, coefficients, "per_tensor")
        assert report.checksum == checksum({n: t.numpy() for n, t in master.items()})
        assert report.update_norm == pytest.approx(norm, rel=1e-9)
        assert report.num_parameters == sum(tensor.numel() for tensor in master.values())
        drift = sum(float((master[n] - start[n]).double().square().sum()) for n in master) ** 0.5
        assert report.drift_norm == pytest.approx(drift, rel=1e-6)
        sampled = await sample(engine, LONG_PROMPT, temperature=0.0)
        moved = loaded_with(model, master)
        assert distance(sampled, scores(moved, LONG_PROMPT, sampled)) < 1e-5
        assert sampled.versions == [version] * 24


async def test_the_saved_master_is_a_model_folder(engine: VLLMEngine, tmp_path: Path) -> None:
    weights: Weights = weights_of(other_model(tmp_path, seed=13))
    await engine.publish(next(VERSIONS), weights)
    await engine.perturb(1, 0.1, "per_tensor")
    await engine.save(tmp_path / "checkpoints" / "7")
    saved = load(tmp_path / "checkpoints" / "7")
    assert checksum(weights_of(saved)) == checksum(weights)
    assert (tmp_path / "checkpoints" / "7" / "tokenizer.json").exists()


async def test_a_folder_without_safetensors_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match="has no safetensors weights"):
        await VLLMEngine.start(tmp_path, SETTINGS)


async def test_the_engines_process_is_forked_from_a_server_that_has_vllm(
    engine: VLLMEngine,
) -> None:
    (process,) = engine._engine.engine_core.resources.engine_manager.processes
    server = psutil.Process(process.pid).parent()
    assert server is not None
    assert "multiprocessing.forkserver" in " ".join(server.cmdline())
    assert server.ppid() == os.getpid()
    # torch's library is mapped in the server too: it was there before the fork.
    assert any("libtorch_cpu" in part.path for part in server.memory_maps())


async def test_the_engine_follows_the_run_config() -> None:
    one = engine_settings(
        grpo_config(rollout={"num_generators": 3, "max_concurrent": 100, "kv_cache_gib": 0.5}),
        threads=2,
        index=0,
    )
    assert (one.max_concurrent, one.max_batch) == (34, 68)
    assert [replace(one, max_concurrent=n).max_batch for n in (4096, 5000, 9000)] == [8192] * 3
    assert (one.kv_cache_gib, one.keep_master) == (0.5, False)
    assert engine_settings(es_config(), threads=1, index=0).keep_master
    assert not one.cuts_turns
    cutting = grpo_config(method={"name": "async_grpo"}, rollout={"weight_update_mode": "abort"})
    assert engine_settings(cutting, threads=1, index=0).cuts_turns
    seeds = {engine_settings(grpo_config(), threads=1, index=i).seed for i in range(8)}
    assert len(seeds) == 8
