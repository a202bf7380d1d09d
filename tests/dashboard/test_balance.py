from dashboard.balance import Account, Place, balance_words, by_step, held_at
from dashboard.watch import Curve


def account(issued: dict[int, float], **places: dict[int, float]) -> Account:
    return Account(
        "prompts",
        "issued",
        Curve("issued", {}, issued),
        tuple(Place(name, Curve(name, {}, values)) for name, values in places.items()),
    )


def test_a_ledger_whose_places_hold_what_was_issued_balances_at_every_step() -> None:
    fine = account({1: 4, 2: 9}, trained={1: 0, 2: 4}, ready={1: 4, 2: 2}, dropped={2: 3})
    assert fine.checked() == ([1, 2], [])
    assert fine.equation() == "9 prompts issued = 4 trained + 2 ready + 3 dropped"
    assert balance_words([fine]) == "Balanced at each of 2 steps so far."


def test_a_step_that_does_not_balance_is_named() -> None:
    off = account({1: 4, 2: 9}, trained={1: 3, 2: 9})
    assert off.checked() == ([1, 2], [1])
    assert "Out of balance: prompts at step 1." in balance_words([off])


def test_many_steps_out_of_balance_are_counted() -> None:
    off = account(dict.fromkeys(range(8), 1.0), trained=dict.fromkeys(range(8), 0.0))
    assert "step 0, 1, 2, 3, 4 and 3 more" in balance_words([off])


def test_a_place_holds_nothing_before_it_is_heard_of_and_what_it_had_after() -> None:
    curve = Curve("dropped", {"reason": "stale"}, {4: 2.0, 6: 5.0})
    assert [held_at(curve, step) for step in (3, 4, 5, 6, 9)] == [0.0, 2.0, None, 5.0, 5.0]
    assert held_at(None, 3) == 0.0


def test_a_step_of_which_a_thinned_curve_has_no_point_is_not_judged() -> None:
    thinned = account({1: 1, 2: 2, 3: 3}, trained={1: 1, 3: 3})
    assert thinned.checked() == ([1, 3], [])


def test_before_the_first_step_nothing_is_claimed() -> None:
    empty = Account("prompts", "issued", None, ())
    assert empty.newest is None
    assert empty.equation() == ""
    assert balance_words([empty]) == "Nothing was reported yet."
    assert account({5: 1}, trained={5: 1}).checked() == ([5], [])


def test_cumulative_counts_grow_by_what_each_step_added_to_all_of_them() -> None:
    curves = [
        Curve("d", {"reason": "a"}, {1: 2.0, 2: 2.0, 4: 6.0}, {1: 10.0, 2: 11.0, 4: 12.0}),
        Curve("d", {"reason": "b"}, {2: 1.0, 4: 1.0}, {2: 11.0, 4: 12.0}),
    ]
    grown = by_step(curves)
    assert grown is not None
    assert grown.values == {1: 2.0, 2: 1.0, 4: 2.0}
    assert by_step([]) is None
