"""One step off-policy: a batch is generated while the one before it is trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lagoon.clashes import Clash
from lagoon.methods.base import WeightUpdateMode
from lagoon.methods.grouped import Clipped

if TYPE_CHECKING:
    from lagoon.config import RunConfig


class OneStepOff(Clipped):
    """GRPO whose batches come from the policy before the last update (arXiv:2410.18252).

    While the trainer works on a batch, the generators play the next one with the weights of the
    update before; new weights are published when they have finished it. So every trajectory has
    one version, and every batch but the first lags by exactly one. Only what was lost with a
    generator, and is played again, may have the newer weights.
    """

    title = "GRPO, one step off-policy"
    paper = "2410.18252"

    name: Literal["one_step_off"] = "one_step_off"

    def clashes(self, config: RunConfig) -> list[Clash]:
        """Too few places for a batch: what did not begin before the update would not lag."""
        found, places = super().clashes(config), config.rollout.max_concurrent
        batch = self.num_prompts * self.group_size
        if places < batch:
            fields = ("rollout.max_concurrent", "method.num_prompts", "method.group_size")
            message = (
                f"a batch of {batch} trajectories is played while the one before it is trained "
                f"on, but only {places} are played at once"
            )
            found.append(Clash(fields, message))
        return found

    @property
    def staleness_bound(self) -> int:
        """1: the batch that is generated while another is trained on."""
        return 1

    @property
    def weight_update_modes(self) -> tuple[WeightUpdateMode, ...]:
        """New weights wait for the batch in flight: that is the method."""
        return ("wait",)
