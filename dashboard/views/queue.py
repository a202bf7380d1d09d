"""The queue: what the nodes have, who holds it, and who waits for it, in order and with the reason.

::

    every 2 s: one request ─▶ nodes ─▶ holders ─▶ waiting runs, restarts to come
                                                      │
    a button ─▶ one request, before the next drawing ◀┘
"""

from collections.abc import Callable, Sequence
from functools import partial
from html import escape

import streamlit as st

from dashboard import markup, queue_records, records, trouble
from dashboard.client import ApiError
from dashboard.session import Site
from dashboard.words import day_time, number, plural, short_time, slots, utc_time
from lagoon.queueing import PRIORITIES
from lagoon.status import RunStatus

REFRESH_SECONDS = 2.0
CONTROLS_PX = 374
"""As wide as the buttons of a waiting run; the style sheet leaves as much where there are none."""
REFUSAL = "_queue_refusal"
"""What the API said against the viewer's last change, until the next one."""

_WAITS = "leaves the queue. What it has saved, if it had started before, stays."
_RESTARTS = "is not started again. What it has saved stays, and it can be resumed."


def show(site: Site) -> None:
    """Draw the page."""

    @st.fragment(run_every=REFRESH_SECONDS)
    def live() -> None:
        with trouble.reported(site.api):
            _draw(site, site.api.queue())

    live()


def _draw(site: Site, queue: queue_records.Queue) -> None:
    items, paused, leases = queue["items"], queue["paused"], queue["leases"]
    summary = f"{plural(len(leases), 'run')} on the cluster, {number(len(items))} waiting"
    if paused:
        summary += f", {plural(len(paused), 'restart')} to come"
    with st.container(key="page_head"):
        st.html(f'<h1 class="lg-title">Queue<small>{summary}</small></h1>')
    if refusal := st.session_state.get(REFUSAL):
        st.html(markup.notice(refusal, "The queue is as it was.", "bad"))
    _nodes(queue["nodes"])
    st.html(markup.heading("Holding slots", "Until nothing of the run is left on its nodes"))
    if leases:
        _holders(site, leases)
    else:
        st.html(markup.notice("Nobody holds anything."))
    note = "Priority first, then who holds less of the cluster, then each user's own order"
    st.html(markup.heading("Waiting", note))
    if items:
        _line(site, items)
    else:
        st.html(markup.empty("Nobody waits.", "A run that is launched now starts if it fits."))
    if paused:
        st.html(markup.heading("Restarts to come", "They join the queue when their pause is over"))
        _restarts(site, paused)


def _nodes(nodes: Sequence[queue_records.NodeRecord]) -> None:
    if not nodes:
        words = "Nothing can start before the workers have seen Ray with its nodes."
        st.html(markup.notice("No node is there.", words, "warn"))
        return
    st.html(f'<div class="lg-nodes">{"".join(_node(node) for node in nodes)}</div>')


def _node(node: queue_records.NodeRecord) -> str:
    bars = "".join(
        _bar(kind, total - free, total)
        for kind, total, free in (
            ("GPUs", node["gpus"], node["gpus_free"]),
            ("CPUs", node["cpus"], node["cpus_free"]),
        )
        if total
    )
    return f'<div class="lg-node"><h3>{escape(node["name"])}</h3>{bars}</div>'


def _bar(kind: str, held: float, total: float) -> str:
    share = 100 * min(1.0, held / total)
    return (
        f"<p><span>{kind}</span><span><b>{number(held)}</b> of {number(total)} held</span></p>"
        f'<div class="lg-bar"><div class="lg-fill" style="width:{share:.1f}%"></div></div>'
    )


def _holders(site: Site, leases: Sequence[queue_records.LeaseRecord]) -> None:
    with st.container(key="holders", gap=None):
        for index, lease in enumerate(leases):
            run = lease["run"]
            with st.container(key=f"row_held_{run['run_id'] if run else index}"):
                st.html(_holder(site, lease))
                if run:
                    site.link("run", f"Open run {run['name']}", run=run["run_id"])


def _holder(site: Site, lease: queue_records.LeaseRecord) -> str:
    over = RunStatus(lease["status"]).is_terminal
    below = "its processes are ending" if over else f"attempt {lease['attempt']}"
    nodes = ", ".join(
        escape(share["node"])
        + (f" ({slots(share['cpus'], share['gpus'])})" if len(lease["nodes"]) > 1 else "")
        for share in lease["nodes"]
    )
    taken = lease["taken_at"]
    return (
        f'<div class="lg-held"><div>{_name(lease["run"])}<small>by {escape(lease["owner"])}'
        f"</small></div><div>{markup.pill(lease['status'])}<small>{below}</small></div>"
        f"<div>{slots(lease['cpus'], lease['gpus'])}<small>held</small></div>"
        f"<div>{nodes}<small>{'node' if len(lease['nodes']) == 1 else 'nodes'}</small></div>"
        f'<div title="{utc_time(taken)}">{short_time(taken, site.zone)}<small>since</small></div>'
        "</div>"
    )


def _line(site: Site, items: Sequence[queue_records.QueueItem]) -> None:
    with st.container(key="line", gap=None):
        for item in items:
            controls = partial(_controls, site, items, item)
            _to_start(site, item, f"other_{item['position']}", _place(site, item), controls)


def _restarts(site: Site, paused: Sequence[queue_records.Paused]) -> None:
    with st.container(key="restarts", gap=None):
        for index, item in enumerate(paused):
            controls = partial(_cancel, site, words=_RESTARTS)
            _to_start(site, item, f"other_restart_{index}", _restart(site, item), controls)


def _to_start(
    site: Site,
    item: queue_records.Asking,
    other: str,
    html: str,
    controls: Callable[[records.RunReference], None],
) -> None:
    """A run that is to start, with ``controls`` for those who may change it; ``other`` names the
    row of a run that the viewer may not see."""
    run = item["run"]
    key = run["run_id"] if run else other
    with st.container(key=f"queued_{key}", horizontal=True, vertical_alignment="center"):
        with st.container(key=f"row_place_{key}"):
            st.html(html)
            if run:
                site.link("run", f"Open run {run['name']}", run=run["run_id"])
        if run and item["may_change"]:
            with st.container(key=f"controls_{key}", horizontal=True, width=CONTROLS_PX):
                controls(run)


def _restart(site: Site, item: queue_records.Paused) -> str:
    moment = item["restarts_at"]
    at = f'<b title="{utc_time(moment)}">{day_time(moment, site.zone)}</b>'
    after = f" after: {escape(item['reason'])}" if item["reason"] else "."
    below = f"by {escape(item['owner'])}"
    return _row("↻", item, below, f"Restarts at {at}{after}")


def _place(site: Site, item: queue_records.QueueItem) -> str:
    queued = item["queued_at"]
    below = (
        f'<span title="{utc_time(queued)}">by {escape(item["owner"])} · '
        f"{short_time(queued, site.zone)}</span>"
    )
    return _row(str(item["position"]), item, below, escape(item["reason"] or "Starts now."))


def _row(place: str, item: queue_records.Asking, below: str, words: str) -> str:
    """Place, name, what it asks for, and why it waits; ``below`` and ``words`` are markup."""
    level = item["priority"]
    kind = {"high": "warn", "low": ""}.get(level)
    shown = " " + markup.chip(level, kind) if kind is not None else ""
    num = item["num_processes"]
    processes = "1 process" if num == 1 else f"{number(num)} processes"
    return (
        f'<div class="lg-place"><i>{place}</i><div>{_name(item["run"])}{shown}'
        f"<small>{below}</small></div>"
        f"<div>{slots(item['cpus'], item['gpus'])}"
        f"<small>for {processes}</small></div>"
        f"<span>{words}</span></div>"
    )


def _name(run: records.RunReference | None) -> str:
    return f"<b>{escape(run['name'])}</b>" if run else "<b>A run of somebody else</b>"


def _controls(
    site: Site,
    items: Sequence[queue_records.QueueItem],
    item: queue_records.QueueItem,
    run: records.RunReference,
) -> None:
    """Priority, one place up or down among the same owner's runs, and out of the queue."""
    api, id = site.api, run["run_id"]
    before, after = _neighbours(items, item)
    _priority(site, item, id)
    st.button(
        "Up",
        key=f"up_{id}",
        icon=":material/arrow_upward:",
        help="Before the owner's run ahead of it",
        disabled=before is None,
        on_click=_change,
        args=(lambda: api.move_run(id, before=before),),
    )
    st.button(
        "Down",
        key=f"down_{id}",
        icon=":material/arrow_downward:",
        help="After the owner's next run",
        disabled=after is None,
        on_click=_change,
        args=(lambda: api.move_run(id, after=after),),
    )
    _cancel(site, run, _WAITS)


def _cancel(site: Site, run: records.RunReference, words: str) -> None:
    id = run["run_id"]
    with st.popover("Cancel", icon=":material/close:"):
        st.html(f"<p><b>{escape(run['name'])}</b> {words}</p>")
        st.button(
            f"Cancel {run['name']}",
            key=f"cancel_{id}",
            type="primary",
            on_click=_change,
            args=(lambda: site.api.stop_run(id),),
        )


def _priority(site: Site, item: queue_records.QueueItem, id: str) -> None:
    """The API's own word is what the field shows, whoever changed it."""
    key = f"priority_{id}"
    choices = [
        level
        for level in PRIORITIES
        if level != "high" or site.user["role"] == "admin" or item["priority"] == "high"
    ]
    st.session_state[key] = item["priority"]
    st.selectbox(
        f"Priority of {id}",
        choices,
        key=key,
        label_visibility="collapsed",
        width=110,
        on_change=lambda: _change(lambda: site.api.set_priority(id, st.session_state[key])),
    )


def _neighbours(
    items: Sequence[queue_records.QueueItem], item: queue_records.QueueItem
) -> tuple[str | None, str | None]:
    """The runs of the same owner and priority just before and just after, if any."""
    alike = [
        each
        for each in items
        if (each["owner"], each["priority"]) == (item["owner"], item["priority"])
    ]
    at = next(i for i, each in enumerate(alike) if each["position"] == item["position"])
    ids = [each["run"]["run_id"] if each["run"] else None for each in alike]
    return (ids[at - 1] if at else None), (ids[at + 1] if at + 1 < len(ids) else None)


def _change(make: Callable[[], object]) -> None:
    """Make a change; a refusal is kept for the next drawing."""
    st.session_state.pop(REFUSAL, None)
    try:
        make()
    except ApiError as error:
        st.session_state[REFUSAL] = str(error)
