"""The ledger of prompts: each one issued is trained, dropped for a reason, or still somewhere.

``issued = trained + dropped + generating + ready + reserved`` holds after every move; a move that
would break it is refused. Evaluation is outside the ledger. Tokens have the same one: there, what
was issued is what was sampled (``lagoon/books.py``).
"""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counts of prompts by where they are. Every move returns a new ledger."""

    issued: int = 0
    generating: int = 0
    ready: int = 0
    reserved: int = 0
    trained: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def num_dropped(self) -> int:
        """Prompts dropped, whatever the reason."""
        return sum(self.dropped.values())

    @property
    def is_balanced(self) -> bool:
        """True when every issued prompt is accounted for and no count is negative."""
        parts = (self.generating, self.ready, self.reserved, self.trained, self.num_dropped)
        return self.issued == sum(parts) and min(parts) >= 0

    def issue(self, count: int = 1) -> "Ledger":
        """Prompts leave the prompt source and start generating."""
        return replace(self, issued=self.issued + count, generating=self.generating + count)

    def complete(self, count: int = 1) -> "Ledger":
        """Generating prompts became ready groups."""
        return self._checked(generating=self.generating - count, ready=self.ready + count)

    def reserve(self, count: int) -> "Ledger":
        """Ready groups were drawn for an update."""
        return self._checked(ready=self.ready - count, reserved=self.reserved + count)

    def put_back(self, count: int) -> "Ledger":
        """Drawn groups that were not trained on are ready again."""
        return self._checked(reserved=self.reserved - count, ready=self.ready + count)

    def train(self, count: int) -> "Ledger":
        """Reserved groups were trained on."""
        return self._checked(reserved=self.reserved - count, trained=self.trained + count)

    def drop(self, reason: str, *, generating: int = 0, ready: int = 0) -> "Ledger":
        """Prompts were given up where they were, with the reason."""
        dropped = dict(self.dropped)
        dropped[reason] = dropped.get(reason, 0) + generating + ready
        return self._checked(
            generating=self.generating - generating,
            ready=self.ready - ready,
            dropped=dropped,
        )

    def _checked(self, **changes: object) -> "Ledger":
        ledger = replace(self, **changes)  # type: ignore[arg-type]  # fields are named above
        if not ledger.is_balanced:
            raise ValueError(f"the ledger does not balance: {ledger}")
        return ledger
