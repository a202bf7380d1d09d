"""Ports: derived from the home folder, checked, and remembered."""

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.home import Home
from cli.output import Refusal
from cli.ports import (
    FIRST_PORT,
    NUM_BLOCKS,
    BlockClaims,
    candidates,
    choose_ports,
    is_port_free,
    ports_of_block,
    remember,
)


def always(_: int) -> bool:
    return True


def never(_: int) -> bool:
    return False


def choose(
    home: Home,
    *,
    taken: set[int] = frozenset(),
    claim=always,
    is_claimed=never,
    api=None,
    dashboard=None,
):
    return choose_ports(
        candidates(home),
        api=api,
        dashboard=dashboard,
        is_free=lambda port: port not in taken,
        claim=claim,
        is_claimed=is_claimed,
    )


@given(st.integers(0, NUM_BLOCKS - 1), st.integers(0, NUM_BLOCKS - 1))
def test_blocks_do_not_overlap_and_no_port_is_given_twice(one, other):
    ports = ports_of_block(one).all()
    assert len(set(ports)) == len(ports)
    assert all(FIRST_PORT <= port < 30000 for port in ports)
    if one != other:
        assert not set(ports) & set(ports_of_block(other).all())


def test_the_same_folder_gets_the_same_ports(tmp_path):
    assert choose(Home(tmp_path)) == choose(Home(tmp_path))


@pytest.mark.parametrize("which", [0, 5, -1])
def test_a_block_with_a_single_taken_port_is_left_alone(tmp_path, which):
    home = Home(tmp_path)
    block, ports = choose(home)
    other, _ = choose(home, taken={ports.all()[which]})
    assert other == (block + 1) % NUM_BLOCKS


def test_a_move_to_another_block_is_remembered(tmp_path):
    home = Home(tmp_path)
    own, ports = choose(home)
    moved, moved_ports = choose(home, taken={ports.api})
    remember(home, moved, moved_ports)
    assert choose(home)[0] == moved != own


@pytest.mark.parametrize("text", ["", "{", '{"block": "x"}', '{"block": 5000}', "[]"])
def test_a_spoilt_memory_is_ignored(tmp_path, text):
    home = Home(tmp_path)
    expected = choose(home)
    (tmp_path / "ports.json").write_text(text)
    assert choose(home) == expected


def test_explicit_ports_are_taken_as_they_are(tmp_path):
    _, ports = choose(Home(tmp_path), api=8000, dashboard=8501)
    assert (ports.api, ports.dashboard) == (8000, 8501)


def test_a_taken_explicit_port_is_one_clear_line(tmp_path):
    with pytest.raises(Refusal) as refused:
        choose(Home(tmp_path), api=8000, taken={8000})
    assert str(refused.value).startswith("Port 8000 is taken by another program.")
    assert "--api-port" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_port_that_is_not_open_to_this_user_is_not_called_taken(tmp_path):
    def is_free(port: int) -> bool:
        if port < 1024:
            raise PermissionError
        return True

    with pytest.raises(Refusal, match="Port 80 is not open to this user") as refused:
        choose_ports(
            candidates(Home(tmp_path)),
            api=None,
            dashboard=80,
            is_free=is_free,
            claim=always,
            is_claimed=never,
        )
    assert "--dashboard-port" in str(refused.value)
    assert "taken" not in str(refused.value)


def test_the_api_and_the_dashboard_cannot_share_a_port(tmp_path):
    with pytest.raises(Refusal, match="both 8000"):
        choose(Home(tmp_path), api=8000, dashboard=8000)


def test_an_explicit_port_among_rays_workers_moves_the_block(tmp_path):
    home = Home(tmp_path)
    block, ports = choose(home)
    other, chosen = choose(home, api=ports.ray_worker_first + 3)
    assert other != block
    assert chosen.api not in range(chosen.ray_worker_first, chosen.ray_worker_last + 1)


def test_no_free_block_is_refused(tmp_path):
    with pytest.raises(Refusal, match="No 100 neighbouring ports"):
        choose(Home(tmp_path), claim=lambda _: False)


def test_two_homes_on_one_block_cannot_both_claim_it(tmp_path):
    home = Home(tmp_path)
    with BlockClaims(tmp_path) as first, BlockClaims(tmp_path) as second:
        block, _ = choose(home, claim=first.claim)
        other, _ = choose(home, claim=second.claim)
    assert block != other


def test_an_explicit_port_in_the_block_of_another_lagoon_is_one_clear_line(tmp_path):
    with BlockClaims(tmp_path) as theirs, BlockClaims(tmp_path) as ours:
        _, ports = choose(Home(tmp_path / "theirs"), claim=theirs.claim)
        for api in (ports.ray_worker_first, ports.ray_worker_last, ports.ray_gcs):
            with pytest.raises(Refusal) as refused:
                choose(Home(tmp_path), claim=ours.claim, is_claimed=ours.is_claimed, api=api)
            assert str(refused.value) == (
                f"Port {api} belongs to another Lagoon that is up on this machine. Nothing was "
                "started. Choose another with --api-port N, or leave it out."
            )
    with BlockClaims(tmp_path) as ours:
        home, api = Home(tmp_path), ports.ray_worker_first
        _, chosen = choose(home, claim=ours.claim, is_claimed=ours.is_claimed, api=api)
    assert chosen.api == api


def test_a_port_that_listens_on_any_address_is_not_free():
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as listener:
            listener.bind((address, 0))
            listener.listen()
            assert not is_port_free(listener.getsockname()[1])


def test_claims_in_a_folder_of_somebody_else_are_refused_quietly(tmp_path: Path):
    with BlockClaims(tmp_path / "missing") as claims:
        assert not claims.claim(1)
