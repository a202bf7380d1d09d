import math

import pytest

from workers.failures import RunFailed
from workers.proof import Expected, Proof, Verdict, judged, once
from workers.rollout import Sampled


def answers(*, version: int | None = 3, logprob: float = -1.0, cached: int = 0) -> list[Sampled]:
    return [
        Sampled([1], [logprob], [version], "length", 64),  # a short prompt may be shared
        Sampled([1], [logprob], [version], "length", cached),
    ]


def expected(logprob: float = -1.0) -> Expected:
    return Expected([[logprob], [logprob]], "the trainer's", 1e-4)


def test_the_right_answers_prove_a_version() -> None:
    verdict = judged(answers(), 3, expected(-1.00005), is_stuck=False)
    assert verdict.fault == ""
    assert verdict.logprob_diff == pytest.approx(5e-5)
    assert judged(answers(), 3, None, is_stuck=False) == Verdict("", None)


def test_each_fault_is_named() -> None:
    late = judged(answers(version=2), 3, expected(), is_stuck=False)
    assert late.fault == "it labels its tokens with version 2"
    silent = judged(answers(version=None), 3, expected(), is_stuck=False)
    assert silent.fault == "it labels its tokens with none"
    cached = judged(answers(cached=128), 3, expected(), is_stuck=False)
    assert cached.fault == "its cache holds keys and values of the version before"
    stuck = judged(answers(), 3, expected(), is_stuck=True)
    assert stuck.fault == "it answers bit for bit as at the version before"
    far = judged(answers(logprob=-1.5), 3, expected(), is_stuck=False)
    assert far.fault.startswith("its log-probabilities are 0.5 nats away from the trainer's")


def test_a_log_probability_that_is_no_number_proves_nothing_and_is_not_called_far_away() -> None:
    for by_whom in (expected(), None):
        said = judged(answers(logprob=math.nan), 3, by_whom, is_stuck=False)
        assert said.fault == "its tokens come without log-probabilities"


def test_a_proof_names_the_generator_that_has_none() -> None:
    proof = once(3, {0: Verdict("", 1e-6), 1: Verdict("it is late", 2e-6)})
    assert (proof.proven, proof.num_mismatched, proof.logprob_diffs) == ([0], 1, [1e-6, 2e-6])
    with pytest.raises(
        RunFailed, match=r"Generator 1 does not hold the weights of version 3: it is late\. Its"
    ):
        proof.refuse()


def test_a_second_try_may_prove_what_the_first_did_not() -> None:
    late = Verdict("it is late")
    repaired = Proof(3, {0: Verdict(""), 1: late}, {0: Verdict(""), 1: Verdict("")})
    repaired.refuse()
    assert (repaired.proven, repaired.num_mismatched) == ([0, 1], 1)
    lost = Proof(3, {0: late}, {0: Verdict("it is late")})
    with pytest.raises(RunFailed, match=r"it is late, at the second try, too\. Its samples"):
        lost.refuse()
