"""Which task comes next: a function of the run's seed and the position alone, so that a resumed
run goes on exactly where it was."""

import numpy as np

ENDLESS_BOUND = 2**31


def task_index(seed: int, position: int, num_tasks: int | None) -> int:
    """The task at ``position`` of a run's training order.

    With a finite number of tasks every epoch is a fresh permutation of all of them; an endless
    source (None) is drawn from at random.
    """
    if num_tasks is None:
        return int(np.random.default_rng((seed, position)).integers(ENDLESS_BOUND))
    epoch, offset = divmod(position, num_tasks)
    return int(np.random.default_rng((seed, epoch)).permutation(num_tasks)[offset])
