"""The configuration on the launch page, as a form or as YAML; each turns into the other."""

import streamlit as st

from dashboard import fields, forms, markup, records
from dashboard.draft import Draft
from dashboard.run_yaml import NotYaml, from_yaml, to_yaml
from dashboard.session import Site, remembered
from dashboard.words import title_of

FIRST = ("method", "environment", "model")
"""Sections that are always open, in this order; the others follow in the schema's."""
MODES = {"form": "Form", "yaml": "YAML"}


def show(site: Site, draft: Draft, catalogue: records.Catalogue) -> bool:
    """Draw form or editor and bring the draft up to date. False while something is unreadable."""
    mode = st.segmented_control(
        "Edit as",
        list(MODES),
        default="form",
        required=True,
        format_func=MODES.__getitem__,
        key="edit",
        label_visibility="collapsed",
    )
    if mode == "yaml":
        return _editor(draft)
    schema = remembered("schema", site.api.schema)
    stranger = _unknown_choice(draft, catalogue)
    if stranger:
        st.html(
            markup.notice(
                f"The form knows no {stranger}.", "Correct it in the YAML view first.", "bad"
            )
        )
        return False
    chosen = _choices(draft, catalogue)
    form = fields.sections(schema, chosen, _without(chosen["method"], catalogue))
    wrong = fields.misfits(form, draft.config)
    if wrong:
        names = ", ".join(wrong)
        st.html(
            markup.notice(
                f"The form cannot show {names}.", "Correct it in the YAML view first.", "bad"
            )
        )
        return False
    return _form(draft, form, catalogue)


def _editor(draft: Draft) -> bool:
    key = f"yaml.{draft.version}"
    if key not in st.session_state:
        # Form edits since the last look are in the draft; the widget's own memory is older.
        st.session_state[key] = to_yaml(draft.config)
    text = st.text_area("Configuration", key=key, height=640, label_visibility="collapsed")
    try:
        draft.config = from_yaml(text)
    except NotYaml as error:
        st.html(markup.notice(str(error), "Nothing is sent until it can be read.", "bad"))
        return False
    # The next form starts from what was typed here.
    st.session_state["_typed"] = draft.version
    return True


def _unknown_choice(draft: Draft, catalogue: records.Catalogue) -> str | None:
    """The method or environment that the configuration names and the API does not know."""
    for part, options in (
        ("method", catalogue["methods"]),
        ("environment", catalogue["environments"]),
    ):
        section = draft.config.get(part)
        name = section.get("name") if isinstance(section, dict) else None
        if name is not None and name not in [option["name"] for option in options]:
            return f"{part} called {name!r}"
    return None


def _choices(draft: Draft, catalogue: records.Catalogue) -> dict[str, str]:
    """Method and environment, chosen before everything that depends on them."""
    if st.session_state.pop("_typed", None) == draft.version:
        draft.version += 1
    chosen = {}
    errors = draft.errors_by_path()
    left, right = st.columns(2, gap="medium")
    for column, part, options in (
        (left, "method", catalogue["methods"]),
        (right, "environment", catalogue["environments"]),
    ):
        titles = {option["name"]: option["title"] for option in options}
        missing = {option["name"]: option.get("missing") for option in options}
        section = draft.config.get(part)
        now = section.get("name") if isinstance(section, dict) else None
        names = list(titles)
        with column:
            picked = st.selectbox(
                title_of(part),
                names,
                names.index(now) if now in names else 0,
                format_func=titles.__getitem__,
                key=f"choose.{draft.version}.{part}",
            )
            if missing[picked]:
                st.html(markup.notice(f"{titles[picked]} may fail.", str(missing[picked]), "warn"))
            forms.show_problems(errors.get(f"{part}.name", ()))
        if picked != now:
            draft.config = {**draft.config, part: {"name": picked}}
            if part == "method":
                draft.leave_to_method("weight_update_mode")
                if _family(picked, catalogue) != _family(now, catalogue):
                    draft.leave_to_method("temperature")
        chosen[part] = picked
    if "trainer" in _without(chosen["method"], catalogue):
        draft.config = {key: part for key, part in draft.config.items() if key != "trainer"}
    return chosen


def _without(method: str, catalogue: records.Catalogue) -> set[str]:
    return set() if _family(method, catalogue) == "policy_gradient" else {"trainer"}


def _family(method: str | None, catalogue: records.Catalogue) -> str:
    return next((m["family"] for m in catalogue["methods"] if m["name"] == method), "")


def _form(draft: Draft, form: list[fields.FormSection], catalogue: records.Catalogue) -> bool:
    values = fields.values_of(form, draft.config)
    extras = fields.extras_of(form, draft.config)
    errors = draft.errors_by_path()
    suggestions = {"model.path": [model["path"] for model in catalogue["models"]]}
    entered: fields.Values = {}
    is_readable = True
    ordered = sorted(form, key=lambda s: FIRST.index(s.name) if s.name in FIRST else len(FIRST))
    for section in ordered:
        key = f"f{draft.version}.{draft.config['method']['name']}"
        key += f".{draft.config['environment']['name']}"
        has_error = any(field.path in errors for field in section.fields)
        is_open = section.name in FIRST or has_error
        with st.expander(_section_title(section, values), expanded=is_open):
            if section.help:
                st.caption(section.help)
            drawn = forms.draw(section, values, errors, key, suggestions)
        entered |= drawn.values
        is_readable = is_readable and not drawn.unreadable
    draft.config = fields.config_of(form, entered, extras)
    if extras:
        st.html(
            markup.notice(
                "Some keys have no field in this form.", "They are sent as they are.", "warn"
            )
        )
    return is_readable


def _section_title(section: fields.FormSection, values: fields.Values) -> str:
    """The section's title, and how many of its settings are not the default."""
    changed = sum(values[field.path] != field.default for field in section.fields)
    return f"{section.title} :gray[· {changed} changed]" if changed else section.title
