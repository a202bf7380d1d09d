"""Answers about storage."""

from pydantic import BaseModel, computed_field


class Sizes(BaseModel):
    """Bytes by what they hold. Of the database's about what the rows take."""

    checkpoint_bytes: int = 0
    trajectory_bytes: int = 0
    log_bytes: int = 0
    metric_bytes: int = 0
    spool_bytes: int = 0
    """Events on their way, and the newest of those that have arrived."""

    @computed_field  # type: ignore[prop-decorator]  # pydantic's own way
    @property
    def total_bytes(self) -> int:
        """All of it."""
        return (
            self.checkpoint_bytes
            + self.trajectory_bytes
            + self.log_bytes
            + self.metric_bytes
            + self.spool_bytes
        )


class RunSizes(Sizes):
    """What one run takes."""

    run_id: str
    name: str
    owner: str
    status: str


class HomeSizes(BaseModel):
    """The machine that the API runs on."""

    database_bytes: int
    disk_free_bytes: int
    disk_total_bytes: int
    checkpoint_quota_bytes: int | None


class StorageOut(BaseModel):
    """What the viewer's runs take; of an admin's view also the home as a whole."""

    num_runs: int
    total: Sizes
    runs: list[RunSizes]
    """The largest first."""
    home: HomeSizes | None
