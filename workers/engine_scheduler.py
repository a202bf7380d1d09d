"""vLLM's scheduler, with log-probabilities that cost nearly nothing. Runs in the engine process.

vLLM sends every token's log-probability to its client by itself, as three small arrays. For a small
model, packing and unpacking them takes a quarter of the time of a step. Here they stay with
the engine until the request is finished, and leave as one list of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.scheduler import Scheduler

from workers.engine import AFTER, LOGPROBS

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request, RequestStatus


class LogprobScheduler(Scheduler):  # type: ignore[misc]  # vLLM is untyped here
    """Keeps the sampled tokens' log-probabilities until their request is finished."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._logprobs: dict[str, list[float]] = {}
        self._cut: dict[str, list[float]] = {}
        """Of requests that were cut, by the name that their client gave them, until they go on."""

    def add_request(self, request: Request) -> None:
        """One that goes on from a request that was cut begins with what that one had."""
        params = request.sampling_params
        after = (params.extra_args or {}).get(AFTER) if params else None
        if after is not None:
            self._logprobs[request.request_id] = self._cut.pop(after, [])
        super().add_request(request)

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Take the step's log-probabilities out before vLLM cuts them up by request."""
        step = model_runner_output.logprobs
        model_runner_output.logprobs = None
        answers: dict[int, EngineCoreOutputs] = super().update_from_output(
            scheduler_output, model_runner_output
        )
        if step is None:
            return answers
        sampled = step.logprobs[:, 0].tolist()
        row_of = model_runner_output.req_id_to_index
        for answer in answers.values():
            for output in answer.outputs:
                self._keep(output, sampled[row_of[output.request_id]])
        return answers

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus
    ) -> list[Any]:
        """Put aside what requests have that are cut; forget those that were given up."""
        aborted: list[Any] = super().finish_requests(request_ids, finished_status)
        for request in aborted:
            had = self._logprobs.pop(request.request_id, [])
            if request_ids is None:  # all of them: that is a pause, after which they go on
                # vLLM's own id is the client's with something random behind it.
                name = request.request_id.rpartition("-")[0] or request.request_id
                self._cut[name] = had
        return aborted

    def _keep(self, output: Any, logprob: float) -> None:
        kept = self._logprobs.setdefault(output.request_id, [])
        if output.new_token_ids:
            kept.append(logprob)
        if output.finish_reason is not None:
            output.kv_transfer_params = {LOGPROBS: self._logprobs.pop(output.request_id)}
