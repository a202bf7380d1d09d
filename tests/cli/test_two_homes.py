"""Two home folders side by side: the real PostgreSQL and Valkey of each, and nothing shared."""

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
import redis

from cli.home import Home
from cli.output import Refusal
from cli.ports import BlockClaims, Ports, candidates, choose_ports, is_port_free, remember
from cli.processes import marked
from cli.services.postgres import database_url, postgres
from cli.services.valkey import broker_url, valkey
from cli.supervisor import Supervisor


def started(folder: Path, stack: ExitStack) -> tuple[Home, Ports]:
    home = Home(folder)
    home.create()
    home.create_short()
    stack.callback(shutil.rmtree, home.short)
    claims = stack.enter_context(BlockClaims(home.short.parent))
    block, ports = choose_ports(
        candidates(home),
        api=None,
        dashboard=None,
        is_free=is_port_free,
        claim=claims.claim,
        is_claimed=claims.is_claimed,
    )
    remember(home, block, ports)
    supervisor = Supervisor(home, f"test-two-{home.key}", lambda _: None, os.environ)
    stack.callback(supervisor.stop)
    supervisor.start(postgres(home))
    supervisor.start(valkey(home, ports))
    supervisor.wait_ready("postgres")
    supervisor.wait_ready("valkey")
    return home, ports


def rows(home: Home, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database_url(home).replace("+psycopg", "", 1)) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def test_two_homes_run_side_by_side_and_keep_their_data_apart(tmp_path):
    with ExitStack() as stack:
        one, one_ports = started(tmp_path / "one", stack)
        two, two_ports = started(tmp_path / "two", stack)
        assert not set(one_ports.all()) & set(two_ports.all())

        rows(one, "create table here (name text); insert into here values ('one')")
        assert rows(two, "select to_regclass('here')") == [(None,)]
        with (
            redis.Redis.from_url(broker_url(one, one_ports)) as first,
            redis.Redis.from_url(broker_url(two, two_ports)) as second,
        ):
            first.set("key", "one")
            assert second.get("key") is None
        with (
            redis.Redis.from_url(f"redis://127.0.0.1:{one_ports.valkey}/0") as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()
        with (
            redis.Redis.from_url(broker_url(two, one_ports)) as confused,
            pytest.raises(redis.AuthenticationError),
        ):
            confused.ping()
    assert marked(f"test-two-{one.key}") == []
    assert marked(f"test-two-{two.key}") == []


def test_data_outlives_a_restart_and_ports_stay(tmp_path):
    with ExitStack() as stack:
        home, ports = started(tmp_path / "home", stack)
        rows(home, "create table here (name text); insert into here values ('kept')")
    with ExitStack() as stack:
        home, later = started(tmp_path / "home", stack)
        assert rows(home, "select name from here") == [("kept",)]
        assert later == ports


def test_a_database_that_cannot_start_says_why(tmp_path):
    with ExitStack() as stack:
        started(tmp_path / "home", stack)
    (tmp_path / "home" / "postgres" / "PG_VERSION").write_text("12\n")
    with ExitStack() as stack, pytest.raises(Refusal, match="found version 12"):
        started(tmp_path / "home", stack)
