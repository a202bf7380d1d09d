"""What becomes of an engine's answer; vLLM's outputs are stand-ins."""

import math
from types import SimpleNamespace
from typing import Any

from workers.engine import LOGPROBS, _sampled


def part(tokens: list[int], *, version: int, kept: list[float] | None, finish: str = "stop") -> Any:
    """A request's output, its log-probabilities beside it as the scheduler sends them."""
    span = SimpleNamespace(start=0, end=len(tokens), version=version)
    output = SimpleNamespace(
        token_ids=tokens, weight_versions=[span], logprobs=None, finish_reason=finish
    )
    params = None if kept is None else {LOGPROBS: kept}
    return SimpleNamespace(outputs=[output], kv_transfer_params=params, num_cached_tokens=32)


def test_parts_of_a_request_that_was_cut_are_one_answer() -> None:
    parts = [part([4, 5], version=1, kept=None), part([6], version=2, kept=[-1.0, -2.0, -3.0])]
    found = _sampled(parts)
    assert found.token_ids == [4, 5, 6]
    assert found.logprobs == [-1.0, -2.0, -3.0]
    assert found.versions == [1, 1, 2]
    assert (found.finish, found.num_cached_tokens) == ("stop", 32)


def test_log_probabilities_of_which_some_are_missing_are_all_missing_and_never_zero() -> None:
    for kept in ([-1.0], [], None):
        found = _sampled([part([4, 5], version=1, kept=kept)])
        assert found.token_ids == [4, 5]
        assert len(found.logprobs) == 2
        assert all(map(math.isnan, found.logprobs))
