"""The metric catalogue: every quantity that Lagoon reports is declared once, here.

A metric's name has two parts, ``panel/quantity``; whatever varies (a split, a generator, a side)
is a label, never a part of the name. Code reports ``{METRIC: value}``, so that a typing mistake
is a ``NameError`` before it is a gap in a chart.
"""

from dataclasses import dataclass
from typing import Literal

CATALOGUE: dict[str, "Metric"] = {}
"""Every declared metric by name."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A named quantity. Creating one adds it to the catalogue.

    Raises ``ValueError`` when the name is taken or is not of the form ``panel/quantity``.
    """

    name: str
    unit: str
    description: str
    kind: Literal["scalar", "histogram"] = "scalar"

    def __post_init__(self) -> None:
        if self.name.count("/") != 1:
            raise ValueError(f"metric name {self.name!r} must be 'panel/quantity'")
        if self.name in CATALOGUE:
            raise ValueError(f"metric {self.name!r} is declared twice")
        CATALOGUE[self.name] = self

    @property
    def panel(self) -> str:
        """The dashboard panel the metric belongs to: the part before the slash."""
        return self.name.split("/")[0]


REWARD_MEAN = Metric("reward/mean", "reward", "Mean reward of the trajectories trained on.")
REWARD_STD = Metric("reward/std", "reward", "Standard deviation of those rewards.")
ZERO_VARIANCE_GROUPS = Metric(
    "reward/zero_variance_groups",
    "groups",
    "Groups whose rewards were all equal: trained, without signal.",
)

HELDOUT_SUCCESS = Metric("heldout/success", "share", "Greedy success on the fixed held-out tasks.")
HELDOUT_LOW = Metric(
    "heldout/success_low", "share", "Lower end of the 95 % Wilson interval of success."
)
HELDOUT_HIGH = Metric(
    "heldout/success_high", "share", "Upper end of the 95 % Wilson interval of success."
)
HELDOUT_TASKS = Metric("heldout/tasks", "tasks", "Held-out tasks that were evaluated.")
HELDOUT_REWARD = Metric("heldout/reward", "reward", "Mean reward on the held-out tasks.")

STALENESS_GENERATION = Metric(
    "staleness/generation",
    "policy versions",
    "Completion version minus behavior version, mean over trained tokens.",
)
STALENESS_WAITING = Metric(
    "staleness/waiting",
    "policy versions",
    "Trained version minus completion version, mean over trained tokens.",
)
STALENESS_TOTAL = Metric(
    "staleness/total",
    "policy versions",
    "Trained version minus behavior version, mean over trained tokens: generation + waiting.",
)
STALENESS_WORST = Metric(
    "staleness/worst", "policy versions", "Largest token staleness in the step."
)
STALENESS_COVERAGE = Metric(
    "staleness/coverage_ratio", "share", "Trained tokens whose policy version is known."
)
STALENESS_MISSING = Metric(
    "staleness/missing_tokens",
    "tokens",
    "Trained tokens of the step whose policy version is unknown: they are in no staleness count.",
)
GENERATION_HISTOGRAM = Metric(
    "staleness/generation_tokens",
    "policy versions",
    "Trained tokens by completion version minus behavior version.",
    "histogram",
)
WAITING_HISTOGRAM = Metric(
    "staleness/waiting_tokens",
    "policy versions",
    "Trained tokens by trained version minus completion version.",
    "histogram",
)
TOTAL_HISTOGRAM = Metric(
    "staleness/total_tokens",
    "policy versions",
    "Trained tokens by trained version minus behavior version.",
    "histogram",
)
WORST_HISTOGRAM = Metric(
    "staleness/worst_trajectories",
    "policy versions",
    "Trajectories by the staleness of their oldest token.",
    "histogram",
)
MASKED_HISTOGRAM = Metric(
    "staleness/masked_tokens",
    "policy versions",
    "Trained tokens that a correction gave weight 0, by trained version minus behavior version.",
    "histogram",
)
SPAN_HISTOGRAM = Metric(
    "staleness/span_trajectories",
    "policy versions",
    "Trajectories by the number of policy versions that sampled them.",
    "histogram",
)

POOL_GENERATING = Metric("pool/generating", "prompts", "Prompts being rolled out.")
POOL_READY = Metric("pool/ready", "prompts", "Finished groups waiting to be trained on.")
POOL_RESERVED = Metric("pool/reserved", "prompts", "Groups drawn for the current update.")
PROMPT_PLACES = {"generating": POOL_GENERATING, "ready": POOL_READY, "reserved": POOL_RESERVED}
"""Where issued prompts are that were neither trained on nor dropped: terms of the balance."""
POOL_OFFERED = Metric(
    "pool/offered",
    "prompts",
    "Groups that were ready when the batch was drawn, those that were given up then included.",
)
POOL_TARGET = Metric("pool/target", "prompts", "Groups the method aims to hold ready.")
POOL_LIMIT = Metric(
    "pool/limit",
    "prompts",
    "Prompts that the staleness bound lets be generating, ready and reserved together; absent "
    "without a bound.",
)
BACKPRESSURE_SECONDS = Metric(
    "pool/backpressure_seconds",
    "s",
    "Wall-clock of the step in which generators had places free and the staleness bound let "
    "nothing start.",
)

REJECTION_RATE = Metric(
    "pool/rejection_rate",
    "share",
    "Share of the ready groups to be rejected; label kind: raw, smoothed.",
)
REJECTED = Metric("pool/rejected", "prompts", "Groups rejected in the step; label: reason.")
EFFECTIVE_STALENESS = Metric(
    "pool/effective_staleness",
    "policy versions",
    "Mean score that ready groups are ranked by; label fate: kept, rejected.",
)
POOL_RESPONSE_TOKENS = Metric(
    "pool/response_tokens",
    "tokens",
    "Mean sampled tokens per trajectory of the pool; label fate: kept, rejected.",
)
POOL_SUCCESS = Metric(
    "pool/success", "share", "Successful trajectories of the pool; label fate: kept, rejected."
)
STALENESS_IF_KEPT = Metric(
    "pool/staleness_if_kept",
    "policy versions",
    "Mean token staleness that the batch would have had, had nothing been rejected.",
)
DELAY_IF_KEPT = Metric(
    "pool/delay_if_kept",
    "steps",
    "Steps by which the groups behind the rejected ones would have waited longer.",
)

LEDGER_ISSUED = Metric(
    "ledger/issued",
    "prompts",
    "Prompts issued so far. The points of a ledger at a step, and those of the pool's places, are "
    "the books at the end of the step's update, before it was published: what the step trained on "
    "is still reserved.",
)
LEDGER_TRAINED = Metric("ledger/trained", "prompts", "Prompts trained on so far.")
LEDGER_DROPPED = Metric("ledger/dropped", "prompts", "Prompts dropped so far; label: reason.")

LEDGER_TOKENS = Metric(
    "ledger/tokens",
    "tokens",
    "Sampled tokens of episodes that have come back, by where they are; label place: issued (all "
    "of them), trained, generating (others of their groups are still being played), ready, "
    "reserved. What an episode that is being played has sampled is not known.",
)
LEDGER_TOKENS_DROPPED = Metric(
    "ledger/tokens_dropped", "tokens", "Sampled tokens dropped so far; label: reason."
)
LEDGER_DROPPED_TRAJECTORIES = Metric(
    "ledger/dropped_trajectories",
    "trajectories",
    "Trajectories dropped so far; labels: reason, outcome.",
)
LEDGER_TRAINED_TRAJECTORIES = Metric(
    "ledger/trained_trajectories",
    "trajectories",
    "Trajectories trained on before the step; label: outcome.",
)
LEDGER_LENGTH_BIAS = Metric(
    "ledger/length_bias",
    "share",
    "Mean length of what was trained on over that of all that was trained on or dropped, less 1.",
)

LOSS = Metric("trainer/loss", "loss", "The method's loss over the batch.")
GRAD_NORM = Metric("trainer/grad_norm", "norm", "Gradient norm before clipping.")
LEARNING_RATE = Metric("trainer/learning_rate", "1/step", "Learning rate of this step.")
ENTROPY = Metric(
    "trainer/entropy",
    "nats",
    "Mean entropy of the trained policy where it trains on a token, before the update.",
)
CLIPPED = Metric(
    "trainer/clipped_ratio",
    "share",
    "Trained tokens whose importance ratio was cut, those that a correction masked included.",
)
MASKED = Metric("trainer/masked_ratio", "share", "Trained tokens that a correction gave weight 0.")
DRIFT_TOKENS = Metric(
    "drift/tokens",
    "tokens",
    "Trained tokens by what set the policies apart; label cause: mismatch (the engine's numbers, "
    "at the trained version), lag (older weights), unknown (version or log-probability missing).",
)
DRIFT_LOGPROB_ABS = Metric(
    "drift/logprob_abs",
    "nats",
    "Mean absolute difference of trainer and generator log-probabilities; label: cause.",
)
DRIFT_KL = Metric(
    "drift/kl",
    "nats",
    "Estimate r - log r - 1 of KL(behavior || trained policy); label: cause.",
)
DRIFT_RATIO = Metric(
    "drift/ratio", "ratio", "Quantiles of the importance ratio; labels: cause, quantile."
)
DRIFT_EFFECTIVE_SAMPLES = Metric(
    "drift/effective_samples",
    "share",
    "Effective sample size under the importance ratios, of all tokens; label: cause.",
)
DRIFT_CLIPPED = Metric(
    "drift/clipped_ratio",
    "share",
    "Trained tokens whose ratio was cut, masked ones included; labels: cause, side.",
)
DRIFT_MASKED = Metric(
    "drift/masked_ratio",
    "share",
    "Trained tokens that a correction gave weight 0; labels: cause, side.",
)
VALUE_LOSS = Metric(
    "trainer/value_loss",
    "reward²",
    "The critic's squared error of the returns, before its updates.",
)
EXPLAINED_VARIANCE = Metric(
    "trainer/explained_variance",
    "share",
    "Part of the variance of returns that the critic's values explain: 1 is all of it, 0 no more "
    "than their mean does.",
)
CRITIC_GRAD_NORM = Metric(
    "trainer/critic_grad_norm",
    "norm",
    "Gradient norm of the critic before clipping, mean over its updates of the step.",
)
CRITIC_LEARNING_RATE = Metric(
    "trainer/critic_learning_rate", "1/step", "Learning rate of the critic in this step."
)
KL_REFERENCE = Metric(
    "trainer/kl_reference", "nats", "Estimate of the divergence from the initial policy."
)

TURNS = Metric("rollout/turns", "turns", "Mean model turns per trajectory.")
RESPONSE_TOKENS = Metric(
    "rollout/response_tokens", "tokens", "Mean sampled tokens per trajectory trained on."
)
TRUNCATED = Metric(
    "rollout/truncated_ratio", "share", "Trajectories cut by a length or turn limit."
)
TOOL_ERRORS = Metric("rollout/tool_errors", "calls", "Failed tool calls in the step.")
EPISODE_SECONDS = Metric(
    "rollout/episode_seconds", "s", "Mean wall-clock of an episode, from its start to its end."
)
ENVIRONMENT_SECONDS = Metric(
    "rollout/environment_seconds",
    "s",
    "Mean wall-clock of an episode that was spent in its environment, waiting for tools.",
)
LOST_EPISODES = Metric(
    "rollout/lost_episodes",
    "episodes",
    "Episodes so far that came to nothing; label reason: generator_died, unproved_weights (those "
    "are played again), given_up (when the attempt ended). What they had sampled by then is not "
    "known, and in no ledger.",
)

STEP_SECONDS = Metric("time/step_seconds", "s", "Wall-clock of the whole step.")
GENERATE_SECONDS = Metric(
    "time/generate_seconds",
    "s",
    "Wall-clock the trainer waited for data, without the time in which it scored finished groups.",
)
SCORE_SECONDS = Metric(
    "time/score_seconds",
    "s",
    "Wall-clock in which the trainer scored finished groups, before the batch was drawn from them; "
    "absent for methods that choose without scores.",
)
TRAIN_SECONDS = Metric("time/train_seconds", "s", "Wall-clock of the update.")
PUBLISH_SECONDS = Metric("time/publish_seconds", "s", "Wall-clock of publishing weights.")
EVALUATION_WAIT_SECONDS = Metric(
    "time/evaluation_wait_seconds",
    "s",
    "How long new weights waited for the evaluation of the version before, which goes on beside "
    "training and needs the old ones.",
)
EVALUATION_SECONDS = Metric("time/evaluation_seconds", "s", "Wall-clock of a held-out evaluation.")
TOKENS_PER_SECOND = Metric(
    "throughput/tokens_per_second",
    "tokens/s",
    "Tokens sampled for training per second of the step: of the episodes that came back in it, "
    "whatever becomes of them.",
)
TOTAL_TOKENS = Metric(
    "progress/tokens",
    "tokens",
    "Tokens sampled for training by the end of the step: of all episodes that have come back, "
    "trained on or not.",
)
TOTAL_SAMPLES = Metric("progress/trajectories", "trajectories", "Trajectories trained on so far.")

VERIFIED_ENGINES = Metric(
    "sync/verified_engines", "generators", "Generators that proved the published weights."
)
MISMATCHED_ENGINES = Metric(
    "sync/mismatched_engines",
    "generators",
    "Generators that did not prove them at once: 0, or an alarm.",
)
CANARY_DIFF = Metric(
    "sync/canary_logprob_diff",
    "nats",
    "Largest mean difference between a generator's canary log-probabilities and the expected ones.",
)

SIGMA = Metric("es/sigma", "weight units", "Perturbation scale of the generation.")
ALPHA = Metric("es/alpha", "weight units", "Step size of the generation.")
FITNESS = Metric(
    "es/fitness", "fitness", "Fitness over the population; label stat: mean, min, max, std."
)
UPDATE_NORM = Metric("es/update_norm", "norm", "Euclidean norm of the update.")
UPDATE_NORM_LAW = Metric(
    "es/update_norm_law",
    "norm",
    "Norm expected from alpha * sqrt(parameters / population).",
)
DRIFT_NORM = Metric("es/drift_norm", "norm", "Distance of the weights from where they began.")
EVALUATIONS = Metric("es/evaluations", "episodes", "Episodes run by the population so far.")
