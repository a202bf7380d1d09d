"""The configuration of a run: validated once, stored whole, read by everything downstream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from lagoon.clashes import clashes
from lagoon.environments import AnyEnvironment
from lagoon.methods import METHODS, AnyMethod, PolicyGradient
from lagoon.methods.base import WeightUpdateMode
from lagoon.section import Section


def _divisible(gpus: float) -> float:
    """Ray shares one GPU between processes, but gives several to a process only whole."""
    if gpus > 1 and not gpus.is_integer():
        raise PydanticCustomError(
            "gpu_share",
            "{gpus} GPUs cannot be reserved: give a whole number, or a fraction below 1 to share "
            "one GPU",
            {"gpus": f"{gpus:g}"},
        )
    return gpus


Gpus = Annotated[float, AfterValidator(_divisible)]
"""GPUs of one process: a whole number, or a share of one."""


class ModelConfig(Section):
    """The policy and the precision it is computed in."""

    path: str = Field("tiny", min_length=1)
    """A built-in model (tiny, smollm2-135m-instruct), a local folder, or a hub id."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of generators and trainer."""
    max_length_tokens: int = Field(256, ge=16, le=1_048_576)
    """Longest prompt plus response; an episode that would pass it is cut."""


class RolloutConfig(Section):
    """What generation may use: it depends on the machine, not on the method."""

    num_generators: int = Field(1, ge=1, le=1024)
    """vLLM engines."""
    max_concurrent: int = Field(128, ge=1, le=65536)
    """Episodes in flight over all generators."""
    temperature: float | None = Field(None, ge=0, le=5)
    """Sampling temperature of training rollouts. Empty takes the method's own: 1 for policy
    gradients, 0 (greedy) for evolution strategies."""
    kv_cache_gib: float = Field(1.0, gt=0)
    """Memory for keys and values of each generator. It must hold all episodes that the generator
    may have in flight, at model.max_length_tokens each."""
    weight_update_mode: WeightUpdateMode | None = None
    """Episodes in flight when new weights are published: "keep" freezes them for the moment and
    lets them go on with the new ones; "wait" publishes when they are over, and starts none
    meanwhile; "abort" cuts the turns that are being sampled, and begins each again after its
    tokens so far. Empty takes the method's own; synchronous methods have none in flight."""
    tool_timeout_seconds: float = Field(300.0, gt=0, le=86400)
    """A tool that takes longer to answer ends its episode, as it is; the run goes on."""


class TrainerConfig(Section):
    """The optimizer of policy-gradient methods (AdamW)."""

    learning_rate: float = Field(1e-4, gt=0, le=1)
    """Peak learning rate."""
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate falls from its peak to zero over the run's steps."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the learning rate rises from zero."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of the first moment."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of the second moment."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients longer than this are scaled down to it."""
    microbatch_tokens: int = Field(16384, ge=64)
    """Padded tokens per forward pass."""
    cpus: float = Field(1, ge=0)
    """CPU cores of the trainer process. In a synchronous run it has those of the generators on its
    node as well, while they wait for it."""
    gpus: Gpus = Field(0, ge=0)
    """GPUs of the trainer process: a whole number, or a share of one below 1."""


class EvaluationConfig(Section):
    """Greedy evaluation on a fixed set of held-out tasks, outside the ledger."""

    every_steps: int = Field(10, ge=1)
    """Steps (or generations) between evaluations; the first and the last are always evaluated."""
    num_tasks: int = Field(256, ge=1, le=100_000)
    """Held-out tasks, the same ones every time."""
    skip_tasks: int = Field(0, ge=0, le=100_000)
    """Held-out tasks before those: what settings were chosen on is left out where results are
    reported."""


DEFAULT_STALL_SECONDS = 1800.0


class BudgetConfig(Section):
    """When the run ends by itself: at whichever limit comes first."""

    max_steps: int = Field(100, ge=1)
    """Optimizer steps, or ES generations."""
    max_seconds: float | None = Field(None, gt=0)
    """Wall-clock limit, counted from the first step over all attempts of the run; that of a fork
    begins anew. Empty for none."""
    max_restarts: int = Field(3, ge=0, le=100)
    """Times in a row that the platform starts a run again whose process died, from its newest
    checkpoint, without getting further than before; and generators that are started in a row in the
    place of dead ones without a step between them. What would only happen again, as an error of
    its environment, ends it at once. Without a platform nobody starts it again."""
    stall_seconds: float = Field(DEFAULT_STALL_SECONDS, gt=0, le=604_800)
    """Time without a finished trajectory or step after which the run is ended as failed, with what
    it waited for as the reason."""


class ResourcesConfig(Section):
    """What each generator asks the cluster for."""

    cpus_per_generator: float = Field(1, ge=0)
    """CPU cores of each generator."""
    gpus_per_generator: Gpus = Field(0, ge=0)
    """GPUs of each generator: a whole number, or a share of one below 1."""


class CheckpointConfig(Section):
    """What is kept on disk: weights in Hugging Face format, with all that a run needs to go on."""

    every_steps: int | None = Field(None, ge=1)
    """Steps between checkpoints; empty saves one with every evaluation."""
    keep: int = Field(2, ge=1)
    """Newest checkpoints that are kept, besides the final one and the one with the best held-out
    success."""


ACCEPTED = "accepted"
"""The context in which a configuration is read whose combinations were looked at before."""


class RunConfig(Section):
    """Everything that defines a run. The resolved form, with all defaults, is what is stored."""

    model: ModelConfig = Field(default_factory=ModelConfig)
    """The policy."""
    environment: AnyEnvironment
    """The task the policy acts in."""
    method: AnyMethod
    """How the policy is improved."""
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """Generation."""
    trainer: TrainerConfig | None = None
    """The optimizer; only for policy-gradient methods."""
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    """Held-out evaluation."""
    budget: BudgetConfig = Field(default_factory=BudgetConfig)
    """When the run ends."""
    resources: ResourcesConfig = Field(default_factory=ResourcesConfig)
    """CPUs and GPUs."""
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    """Weights on disk."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Seed of prompts, noise and initialization. Sampled tokens are not reproducible: the engine
    takes no seed on CPU."""
    control: Literal["none", "shuffled_rewards"] = "none"
    """"shuffled_rewards" deals the rewards of a step out at random before learning from them: a
    control that must not learn, to tell learning from drift."""

    @classmethod
    def stored(cls, data: dict[str, Any]) -> RunConfig:
        """A configuration that was accepted when its run was made, as it was stored. What excludes
        each other by a rule that came later does not make it unreadable."""
        return cls.model_validate(data, context=ACCEPTED)

    @model_validator(mode="before")
    @classmethod
    def _fill_trainer(cls, data: Any) -> Any:
        """Give policy-gradient runs the default optimizer; evolution runs have none."""
        if isinstance(data, dict) and data.get("trainer") is None and _has_gradient(data):
            return {**data, "trainer": {}}
        return data

    @model_validator(mode="after")
    def _resolve(self, info: ValidationInfo) -> RunConfig:
        """Fill in what the method decides, then refuse combinations that cannot be honoured."""
        decided = {name: value for name, value in self._decided() if value is not None}
        if decided:
            object.__setattr__(self, "rollout", self.rollout.model_copy(update=decided))
        found = [] if info.context == ACCEPTED else clashes(self)
        if found:
            raise PydanticCustomError(
                "clash",
                "{summary}",
                {
                    "summary": "; ".join(clash.message for clash in found),
                    "clashes": [(list(clash.fields), clash.message) for clash in found],
                },
            )
        return self

    def _decided(self) -> Iterator[tuple[str, Any]]:
        """What the method decides of the rollout where the run does not."""
        method, rollout = self.method, self.rollout
        if rollout.temperature is None:
            yield "temperature", method.default_temperature
        if rollout.weight_update_mode is None and isinstance(method, PolicyGradient):
            yield "weight_update_mode", next(iter(method.weight_update_modes), None)


def _has_gradient(data: dict[str, Any]) -> bool:
    method = data.get("method")
    family = getattr(method, "family", None)
    if family is None and isinstance(method, dict):
        families = {cls.model_fields["name"].default: cls.family for cls in METHODS}
        family = families.get(str(method.get("name")))
    return family == "policy_gradient"
