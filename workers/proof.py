"""What generators proved of the weights that they hold.

::

    what can go wrong                       what shows it
    the payload did not arrive              its checksum
    the engine is late                      the version that it labels its tokens with
    keys and values of the version before   cached tokens of a prompt that can have none
    the payload arrived and is not used     log-probabilities: not the expected ones, or bit for bit
                                            those of the version before while they must have moved

The last line needs both of its halves. A step that is smaller than the noise between two programs
is seen by the second alone; a generator that computes with neither version by the first alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from workers.canary import Answers, Scores, difference
from workers.failures import RunFailed

TOLERANCE_NATS = {"float32": 1e-4, "bfloat16": 0.25}
"""Largest mean difference within an answer that is noise between two programs: see
``docs/decisions/0017-weights-are-proved-by-canaries.md``."""
VISIBLE_STEP = {"float32": 1e-6, "bfloat16": 1e-4}
"""Root mean square of a change of the weights that must show in some log-probability."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a generator proved."""

    fault: str
    """Why it does not hold the weights, as a clause; empty: it does."""
    logprob_diff: float | None = None
    """Largest mean difference within an answer from the expected log-probabilities; None where
    there was nothing to compare with."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Log-probabilities of a generator's answers by another account."""

    scores: Scores
    whose: str
    tolerance_nats: float


def judged(answers: Answers, version: int, expected: Expected | None, *, is_stuck: bool) -> Verdict:
    """Whether ``answers`` are those of ``version``.

    ``is_stuck``: they are those of the version before, which the new weights cannot give.
    """
    found = None if expected is None else difference(answers, expected.scores)
    fault = _unsaid(answers) or _wrong_version(answers, version)
    if not fault and answers[-1].num_cached_tokens:
        fault = "its cache holds keys and values of the version before"
    if not fault and is_stuck:
        fault = "it answers bit for bit as at the version before"
    if not fault and expected is not None and found is not None:
        fault = _too_far(found, expected)
    return Verdict(fault, found)


def _unsaid(answers: Answers) -> str:
    logprobs = (logprob for answer in answers for logprob in answer.logprobs)
    return "" if all(map(isfinite, logprobs)) else "its tokens come without log-probabilities"


def _wrong_version(answers: Answers, version: int) -> str:
    others = {label for answer in answers for label in answer.versions} - {version}
    if not others:
        return ""
    names = sorted("none" if label is None else f"version {label}" for label in others)
    return f"it labels its tokens with {', '.join(names)}"


def _too_far(found: float, expected: Expected) -> str:
    if found <= expected.tolerance_nats:  # NaN is not
        return ""
    return (
        f"its log-probabilities are {found:.2g} nats away from {expected.whose}, of which "
        f"{expected.tolerance_nats:.2g} may be noise"
    )


@dataclass(frozen=True, slots=True)
class Proof:
    """What all generators proved of one version."""

    version: int
    at_first: Mapping[int, Verdict]
    """By generator, before anything was repeated."""
    verdicts: Mapping[int, Verdict]
    """By generator, at its last try."""

    @property
    def proven(self) -> list[int]:
        """The generators that hold the version."""
        return [index for index, verdict in self.verdicts.items() if not verdict.fault]

    @property
    def num_mismatched(self) -> int:
        """Generators that did not prove the version at once."""
        return sum(bool(verdict.fault) for verdict in self.at_first.values())

    @property
    def logprob_diffs(self) -> list[float]:
        """Of the generators that were compared with something."""
        found = [verdict.logprob_diff for verdict in self.verdicts.values()]
        return [diff for diff in found if diff is not None]

    def refuse(self) -> None:
        """Raise ``RunFailed`` when a generator could not prove the version."""
        for index, verdict in self.verdicts.items():
            if verdict.fault:
                again = "" if verdict is self.at_first[index] else ", at the second try, too"
                raise RunFailed(
                    f"Generator {index} does not hold the weights of version {self.version}: "
                    f"{verdict.fault}{again}. Its samples would come from another policy; "
                    "checkpoints that were saved before are safe."
                )


def once(version: int, verdicts: Mapping[int, Verdict]) -> Proof:
    """The proof of a version that was tried once."""
    return Proof(version, verdicts, verdicts)
