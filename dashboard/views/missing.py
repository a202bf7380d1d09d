"""What of a run is not there any more, said where a viewer would look for it."""

from dashboard import markup, records
from dashboard.words import number
from lagoon.dropping import NOUNS


def notice(detail: records.RunDetail, *kinds: str) -> str:
    """A sentence for each of ``kinds`` that retention or the driver thinned; empty for none."""
    found = [each for each in detail["missing"] if each["kind"] in kinds]
    sentences = [
        f"{_counted(each['num_expired'], each['kind'], 'older ')} removed by retention."
        for each in found
        if each["num_expired"]
    ]
    sentences += [
        f"{_counted(each['num_dropped'], each['kind'])} dropped by the driver for lack of room."
        for each in found
        if each["num_dropped"]
    ]
    if not sentences:
        return ""
    return markup.notice(" ".join(sentences), "The Events tab says when and why.", "warn")


def dropped(detail: records.RunDetail) -> str:
    """A notice for the run's head when its driver had no room for all of its telemetry."""
    found = [each for each in detail["missing"] if each["num_dropped"]]
    if not found:
        return ""
    parts = ", ".join(_noun(each["num_dropped"], each["kind"]) for each in found)
    return markup.notice(
        f"Not all of this run's telemetry is here. Its driver dropped: {parts}.",
        "It had no room for them; the Events tab says when and why. Curves may be thinner there; "
        "the run's own events and its prompt ledger are whole, and training was not affected.",
        "warn",
    )


def _noun(count: int, kind: str, older: str = "") -> str:
    nouns = NOUNS.get(kind, (kind, kind))
    return f"{number(count)} {older}{nouns[0] if count == 1 else nouns[1]}"


def _counted(count: int, kind: str, older: str = "") -> str:
    return f"{_noun(count, kind, older)} {'was' if count == 1 else 'were'}"
