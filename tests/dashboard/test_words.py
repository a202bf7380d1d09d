from datetime import UTC, datetime

from dashboard import words


def test_durations_read_like_speech() -> None:
    pairs = {3.21: "3.2 s", 41: "41 s", 185: "3 min 05 s", 7620: "2 h 07 min",
             200_000: "2 d 07 h", -1: "–", float("nan"): "–"}  # fmt: skip
    assert {value: words.duration(value) for value in pairs} == pairs


def test_times_are_in_the_viewers_zone_with_utc_at_hand() -> None:
    berlin = words.zone_named("Europe/Berlin")
    assert words.clock_time("2026-08-03T09:30:00Z", berlin) == "03 Aug 2026, 11:30:00"
    assert words.utc_time("2026-08-03T09:30:00Z") == "2026-08-03 09:30:00 UTC"


def test_an_unknown_zone_is_utc() -> None:
    assert words.zone_named("Mars/Base").key == "UTC"
    assert words.zone_named(None).key == "UTC"
    assert words.zone_named("../../etc/passwd").key == "UTC"


def test_numbers_keep_their_meaning() -> None:
    assert words.number("NaN") == "NaN"
    assert words.number("-Infinity") == "-∞"
    assert words.number(None) == "–"
    assert words.number(1234567) == "1\u202f234\u202f567"
    assert words.number(0.12345) == "0.123"
    assert words.percent(0.621) == "62.1 %"
    assert words.percent("NaN") == "–"


def test_what_has_not_ended_is_counted_up_to_now() -> None:
    now = datetime(2026, 8, 3, 10, 0, tzinfo=UTC)
    assert words.elapsed("2026-08-03T09:59:00Z", None, now) == "1 min 00 s"
    assert words.elapsed(None, None, now) == "–"


def test_names_become_labels() -> None:
    assert words.title_of("max_length_tokens") == "Max length tokens"
    assert words.title_of("kv_cache_gib") == "KV cache GiB"
