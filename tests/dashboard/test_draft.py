from dashboard.client import FieldError
from dashboard.draft import Draft, first_config, sentence
from lagoon.config import RunConfig
from tests.dashboard import canned


def test_a_double_click_has_one_key_and_a_change_has_another() -> None:
    draft = Draft("", "a", canned.GRPO)
    key = draft.idempotency_key(None)
    assert draft.idempotency_key(None) == key
    draft.config = {**draft.config, "seed": 1}
    assert draft.idempotency_key(None) != key
    assert Draft("", "a", canned.GRPO).idempotency_key(None) != key


def test_a_clash_stands_at_both_fields_and_names_the_other() -> None:
    draft = Draft("", "a", {}, errors=(FieldError(("a.x", "b.y"), "cannot both be set"),))
    found = draft.errors_by_path()
    assert found["a.x"] == ["Cannot both be set (clashes with b.y)"]
    assert found["b.y"] == ["Cannot both be set (clashes with a.x)"]


def test_a_hint_is_said_once() -> None:
    assert sentence(FieldError(("seeed",), "unknown key", "seed")).endswith("Did you mean seed?")
    told = "unknown key; did you mean 'seed'?"
    assert sentence(FieldError(("seeed",), told, "seed")).count("seed") == 1


def test_replacing_a_draft_forgets_what_was_said_about_it() -> None:
    draft = Draft("", "a", {}, errors=(FieldError(("x",), "wrong"),), checked={})
    draft.replace("preset:p", "p", canned.ES)
    assert draft.errors == ()
    assert draft.checked is None
    assert draft.version == 1


def test_what_is_left_to_the_method_leaves_the_other_rollout_settings() -> None:
    draft = Draft("", "a", {"rollout": {"temperature": 1.0, "num_generators": 2}, "seed": 1})
    draft.leave_to_method("temperature")
    assert draft.config == {"rollout": {"num_generators": 2}, "seed": 1}
    draft.config = {"seed": 1}
    draft.leave_to_method("temperature")
    assert draft.config == {"seed": 1}


def test_the_first_configuration_is_a_valid_run() -> None:
    assert RunConfig.model_validate(first_config(canned.catalogue()))  # type: ignore[arg-type]
