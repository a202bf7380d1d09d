import pytest

from dashboard.run_yaml import NotYaml, from_yaml, to_yaml


def test_small_numbers_stay_numbers() -> None:
    config = {"a": 1e-06, "b": 1e22, "c": 1.0, "d": 5e-324, "e": 0.1}
    assert from_yaml(to_yaml(config)) == config
    assert "1.0e-06" in to_yaml(config)


def test_order_is_kept() -> None:
    assert to_yaml({"z": 1, "a": {"y": None, "b": True}}) == "z: 1\na:\n  y: null\n  b: true\n"


def test_a_mistake_is_named_with_its_line() -> None:
    with pytest.raises(NotYaml, match="line 3"):
        from_yaml("a: 1\nb: [1, 2\nc: 3")


@pytest.mark.parametrize("text", ["just words", "- a\n- b", "3"])
def test_what_is_not_a_mapping_is_refused(text: str) -> None:
    with pytest.raises(NotYaml, match="mapping"):
        from_yaml(text)


def test_nothing_is_an_empty_configuration() -> None:
    assert from_yaml("") == {}


def test_python_objects_are_not_built() -> None:
    with pytest.raises(NotYaml):
        from_yaml("a: !!python/object/apply:os.getcwd []")
