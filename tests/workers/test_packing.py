from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from lagoon.trajectory import TrainingSample, Trajectory
from workers.microbatches import MAX_PADDING, MAX_SEEN_ENTRIES, by_trajectory, micro_batches
from workers.packing import MAX_SHARED_ROW_TOKENS, Row, alone, sharing_prompts

WIDTH = 64
BLANK = Trajectory(
    trajectory_id="t",
    prompt_id="p",
    split="train",
    token_ids=(),
    action_mask=(),
    behavior_logprobs=(),
    versions=(),
    completed_version=0,
    reward=0.0,
    success=False,
)


def trajectory(prompt: int, prompt_length: int, mask: tuple[int, ...] = (1,)) -> Trajectory:
    """``prompt_length`` tokens of value ``prompt``, then distinct ones, sampled where the mask
    says."""
    length = prompt_length + len(mask)
    return replace(
        BLANK,
        token_ids=(prompt,) * prompt_length + tuple(range(100, 100 + len(mask))),
        action_mask=(0,) * prompt_length + mask,
        behavior_logprobs=tuple(-float(place) for place in range(length)),
        versions=(None,) * prompt_length + (3,) * len(mask),
    )


def in_batch(made: list[Trajectory]) -> list[TrainingSample]:
    return [TrainingSample(one, 0.5, 0.1) for one in made]


made_up = st.lists(
    st.builds(
        trajectory,
        st.integers(1, 3),
        st.integers(1, 12),
        st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


def read_back(row: Row, ids: torch.Tensor) -> dict[int, list[int]]:
    """Each trajectory's tokens, put together from a row of token ids."""
    return {
        own.index: [
            *ids[: own.skipped].tolist(),
            *ids[own.start : own.start + own.length].tolist(),
        ]
        for own in row.placed
    }


@given(made_up, st.integers(16, 64))
def test_every_trajectory_is_in_one_row_and_can_be_read_back(
    made: list[Trajectory], max_tokens: int
) -> None:
    rows = sharing_prompts(made, max_tokens, WIDTH)
    batches = list(micro_batches(in_batch(made), rows, max_tokens, torch.device("cpu")))
    found: list[tuple[int, list[int]]] = []
    for batch in batches:
        for row, ids in zip(batch.rows, batch.token_ids, strict=True):
            found += read_back(row, ids).items()
    assert sorted(found) == [(index, list(one.token_ids)) for index, one in enumerate(made)]


@given(made_up, st.integers(16, 64))
def test_each_sampled_token_counts_once(made: list[Trajectory], max_tokens: int) -> None:
    rows = sharing_prompts(made, max_tokens, WIDTH)
    scores = {
        index: values
        for batch in micro_batches(in_batch(made), rows, max_tokens, torch.device("cpu"))
        for index, values in by_trajectory(batch, batch.behavior_logprobs)
    }
    for index, one in enumerate(made):
        pairs = zip(one.behavior_logprobs, one.action_mask, strict=True)
        assert scores[index] == [logprob for logprob, is_action in pairs if is_action]


@given(made_up, st.integers(16, 64))
def test_a_token_sees_its_prompt_and_its_own_trajectory_up_to_itself(
    made: list[Trajectory], max_tokens: int
) -> None:
    rows = sharing_prompts(made, max_tokens, WIDTH)
    for batch in micro_batches(in_batch(made), rows, max_tokens, torch.device("cpu")):
        for place, row in enumerate(batch.rows):
            for own in row.placed:
                for column in range(own.start, own.start + own.length):
                    position = column - own.start + own.skipped
                    seen = [*range(own.skipped), *range(own.start, column + 1)]
                    if position:
                        assert batch.before[place, column] == seen[-2]
                    if batch.layout is not None:
                        assert batch.layout.positions[place, column] == position
                        attends = batch.layout.attends[place, 0, column]
                        assert attends.nonzero().flatten().tolist() == seen


def test_a_long_prompt_is_computed_once_for_its_group() -> None:
    rows = sharing_prompts([trajectory(1, 50, (1, 1)) for _ in range(8)], 1024, WIDTH)
    assert [row.num_tokens for row in rows] == [50 + 8 * 2]


def test_a_short_prompt_is_not_worth_sharing() -> None:
    made = [trajectory(1, 1, (1,) * 6) for _ in range(8)]
    assert sharing_prompts(made, 1024, 4096) == alone(made)


def test_a_prompt_is_shared_where_fewer_tokens_save_more_than_longer_rows_cost() -> None:
    made = [trajectory(1, 5, (1,) * 6) for _ in range(8)]
    assert sharing_prompts(made, 1024, 1) == alone(made)
    assert [row.num_tokens for row in sharing_prompts(made, 1024, 576)] == [5 + 8 * 6]


@given(made_up, st.integers(16, 64))
def test_little_of_a_micro_batch_is_padding(made: list[Trajectory], max_tokens: int) -> None:
    rows = sharing_prompts(made, max_tokens, WIDTH)
    for batch in micro_batches(in_batch(made), rows, max_tokens, torch.device("cpu")):
        held = sum(row.num_tokens for row in batch.rows)
        assert held >= (1 - MAX_PADDING) * batch.token_ids.numel()


def test_a_group_that_is_too_long_for_one_row_is_cut() -> None:
    made = [trajectory(1, 50, (1, 1)) for _ in range(8)]
    assert [row.num_tokens for row in sharing_prompts(made, 56, WIDTH)] == [56, 56, 54]
    long = [trajectory(1, MAX_SHARED_ROW_TOKENS - 3, (1, 1)) for _ in range(2)]
    assert sharing_prompts(long, 10**6, WIDTH) == alone(long)


def test_the_table_of_what_tokens_see_is_bounded() -> None:
    made = [trajectory(group, 1500, (1, 1)) for group in range(20) for _ in range(3)]
    rows = sharing_prompts(made, 10**6, WIDTH)
    batches = list(micro_batches(in_batch(made), rows, 10**6, torch.device("cpu")))
    tables = [batch.layout.attends for batch in batches if batch.layout is not None]
    assert sum(len(table) for table in tables) == 20
    assert max(table.numel() for table in tables) <= MAX_SEEN_ENTRIES


def test_padding_has_no_position_of_its_own() -> None:
    made = [*(trajectory(1, 50, (1, 1)) for _ in range(8)), trajectory(2, 49)]
    rows = sharing_prompts(made, 999, WIDTH)
    (batch,) = micro_batches(in_batch(made), rows, 999, torch.device("cpu"))
    assert batch.layout is not None
    assert int(batch.layout.positions.max()) == 51


def test_trajectories_without_a_sampled_token_share_all_they_have() -> None:
    made = [trajectory(1, 5, (0,)) for _ in range(3)]
    rows = sharing_prompts(made, 99, WIDTH)
    (batch,) = micro_batches(in_batch(made), rows, 99, torch.device("cpu"))
    assert batch.token_ids.shape == (1, 6)
    assert not batch.action_mask.any()
