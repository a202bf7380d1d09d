"""The ledgers of prompts and of tokens: every one is somewhere, at every step."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from dashboard import charts, markup
from dashboard.balance import Account, Place, balance_words, held_at
from dashboard.reasons import reason_words
from dashboard.views.area import RunArea
from dashboard.words import number
from lagoon.metrics import (
    LEDGER_DROPPED,
    LEDGER_ISSUED,
    LEDGER_TOKENS,
    LEDGER_TOKENS_DROPPED,
    LEDGER_TRAINED,
    PROMPT_PLACES,
    Metric,
)

METRICS = (LEDGER_ISSUED, LEDGER_TRAINED, LEDGER_DROPPED, LEDGER_TOKENS, LEDGER_TOKENS_DROPPED)
PLACES = (("generating", "in flight"), ("ready", "ready"), ("reserved", "drawn for the update"))
IN_FLIGHT = (
    "Tokens in flight are those of finished episodes whose groups are not finished; what an "
    "episode samples is known when it ends."
)


def show(area: RunArea) -> None:
    """Both ledgers side by side at the newest step, and whether they balanced at all steps."""
    area.curves(METRICS)
    prompts, tokens = _prompts(area), _tokens(area)
    with st.container(key="panel_ledger"):
        note = "Every prompt issued, and every token of an episode that has come back, is somewhere"
        st.html(markup.heading("Ledger", note))
        st.html(_table(prompts, tokens))
        lines = (account.equation() for account in (prompts, tokens))
        st.html("".join(f'<p class="lg-sum">{escape(line)}</p>' for line in lines if line))
        st.caption(f"{balance_words((prompts, tokens))} {IN_FLIGHT}")


def _prompts(area: RunArea) -> Account:
    return Account(
        "prompts",
        "issued",
        area.curve(LEDGER_ISSUED),
        (
            Place("trained", area.curve(LEDGER_TRAINED)),
            *_dropped(area, LEDGER_DROPPED),
            *(Place(words, area.curve(PROMPT_PLACES[place])) for place, words in PLACES),
        ),
    )


def _tokens(area: RunArea) -> Account:
    def at(place: str, words: str) -> Place:
        return Place(words, area.curve(LEDGER_TOKENS, place=place))

    return Account(
        "tokens",
        "sampled",
        area.curve(LEDGER_TOKENS, place="issued"),
        (
            at("trained", "trained"),
            *_dropped(area, LEDGER_TOKENS_DROPPED),
            *(at(place, words) for place, words in PLACES),
        ),
    )


def _dropped(area: RunArea, metric: Metric) -> list[Place]:
    """By reason; what was reported without one while there was none is left out."""
    curves = [
        curve for curve in area.curves([metric]) if curve.labels or any(curve.values.values())
    ]
    return [Place(f"dropped ({reason_words(charts.label_text(curve))})", curve) for curve in curves]


def _table(*accounts: Account) -> str:
    names = list(dict.fromkeys(place.name for each in accounts for place in each.places))
    rows = [[escape(name), *(_count(each, name) for each in accounts)] for name in _in_order(names)]
    sums = []
    for each in accounts:
        total = each.total(each.newest) if each.newest is not None else None
        sums.append(f"<b>{number(total)}</b>")
    verdicts = [f"{_verdict(each)} <b>{number(_issued(each))}</b>" for each in accounts]
    return markup.table(
        ("where", *(each.unit for each in accounts)),
        [*rows, ["<b>sum</b>", *sums], ["<b>issued, sampled</b>", *verdicts]],
        numeric=range(1, len(accounts) + 1),
    )


def _in_order(names: Sequence[str]) -> list[str]:
    """Trained first, then what was dropped, then what waits."""
    waiting = [words for _, words in PLACES]
    return sorted(names, key=lambda name: (name in waiting, name != "trained"))


def _count(account: Account, name: str) -> str:
    for place in account.places:
        if place.name == name and account.newest is not None:
            return number(held_at(place.curve, account.newest))
    return "–"


def _issued(account: Account) -> float | None:
    if account.issued is None or account.newest is None:
        return None
    return account.issued.values[account.newest]


def _verdict(account: Account) -> str:
    if account.newest is None:
        return ""
    total, issued = account.total(account.newest), _issued(account)
    if total is None or issued is None:
        return ""
    if total == issued:
        return markup.chip("balances", "good")
    return markup.chip(f"off by {number(total - issued)}", "bad")
