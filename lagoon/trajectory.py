"""What a rollout produces. Built once, frozen; each stage returns a new object."""

from dataclasses import dataclass, field
from typing import Literal

Split = Literal["train", "heldout"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of an episode, as text: what a person reads on the run's page."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    seconds: float = 0.0
    """Real time the turn took: sampling for the model's turns, waiting for a tool's."""
    error: str | None = None
    """Set on a tool's turn that failed: the failure is data, not an exception."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode: tokens in, tokens out, and what each sampled token knew.

    All per-token tuples have the length of ``token_ids``. Where ``action_mask`` is 0 the token
    was not sampled by the policy, and its log-probability and version carry no meaning.
    """

    trajectory_id: str
    prompt_id: str
    split: Split
    token_ids: tuple[int, ...]
    action_mask: tuple[int, ...]
    behavior_logprobs: tuple[float, ...]
    versions: tuple[int | None, ...]
    """Policy version that sampled each token; None where the engine did not say."""
    completed_version: int
    """The trainer's policy version when the episode ended."""
    reward: float
    success: bool
    turns: tuple[Turn, ...] = ()
    truncated: bool = False
    started_at: float = 0.0
    """In seconds of the monotonic clock of the machine that played it: a difference means
    something, a moment does not."""
    finished_at: float = 0.0
    info: dict[str, float] = field(default_factory=dict)

    @property
    def num_actions(self) -> int:
        """Tokens sampled by the policy."""
        return sum(self.action_mask)

    @property
    def sampled(self) -> list[tuple[int | None, float]]:
        """Version and behavior log-probability of each token that the policy sampled."""
        rows = zip(self.versions, self.behavior_logprobs, self.action_mask, strict=True)
        return [(version, logprob) for version, logprob, is_action in rows if is_action]

    def is_of(self, version: int) -> bool:
        """Whether that policy version sampled every token that the policy sampled."""
        return all(born == version for born, _ in self.sampled)

    @property
    def num_turns(self) -> int:
        """Turns taken by the policy."""
        return sum(turn.role == "assistant" for turn in self.turns)


@dataclass(frozen=True, slots=True)
class TrajectoryGroup:
    """The trajectories of one prompt, in the order they were started."""

    prompt_id: str
    trajectories: tuple[Trajectory, ...]

    @property
    def rewards(self) -> tuple[float, ...]:
        """Rewards in the order of the trajectories."""
        return tuple(trajectory.reward for trajectory in self.trajectories)


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A trajectory ready for the loss: its advantage and the weight of each of its tokens."""

    trajectory: Trajectory
    advantage: float | tuple[float, ...]
    """Of all of its tokens, or of each: then as long as the trajectory. On its way to a trainer
    with a critic it is what the trajectory earned."""
    token_weight: float
