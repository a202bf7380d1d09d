"""What every benchmark prints, writes and returns."""

from pathlib import Path

import pytest

from benchmarks.frame import Options, Report, run, with_section

GOOD = Report(("what", "measured"), [("speed", "12")], "speed 12 (target >= 10)", [], "How.")
MISSED = Report(("what", "measured"), [("speed", "8")], "speed 8 (target >= 10)", ["speed: 8"])


def ran(report: Report, *arguments: str, **files: Path) -> int:
    return run("speed", lambda options: report, arguments=arguments, **files)


def test_the_table_comes_first_and_the_figure_is_the_last_line(capsys):
    assert ran(MISSED) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["|", "what", "|", "measured", "|"]
    assert lines[-2:] == ["missed: speed: 8", "speed 8 (target >= 10)"]


@pytest.mark.parametrize(("report", "status"), [(GOOD, 0), (MISSED, 1)])
def test_a_missed_target_fails_the_check(report, status):
    assert ran(report, "--check") == status


def test_the_command_line_reaches_the_benchmark():
    seen = []

    def measure(options: Options) -> Report:
        seen.append(options)
        return GOOD

    run("speed", measure, default_seeds=5, arguments=[])
    run("speed", measure, default_seeds=5, arguments=["--quick", "--seeds", "2"])
    assert seen == [Options(quick=False, seeds=5), Options(quick=True, seeds=2)]


def test_the_page_is_written_only_when_asked_for(tmp_path):
    ran(GOOD, docs=tmp_path)
    assert not list(tmp_path.iterdir())
    ran(GOOD, "--write", docs=tmp_path / "docs")
    page = (tmp_path / "docs" / "speed.md").read_text()
    assert page.startswith("# speed\n\n`python -m benchmarks.speed --write` on ")
    assert "| speed | 12 " in page
    assert page.endswith("speed 12 (target >= 10).\n")


def test_a_study_replaces_its_own_section_of_the_results_and_nothing_else(tmp_path):
    results = tmp_path / "results.md"
    start, end = "<!-- speed: written by its benchmark -->", "<!-- end of speed -->"
    results.write_text(f"# Results\n\nbefore\n{start}\nold\n{end}\nafter\n")
    for report in (MISSED, GOOD):
        ran(report, "--write", docs=tmp_path, results=results)
    text = results.read_text()
    assert text.startswith(f"# Results\n\nbefore\n{start}\n\n`python -m")
    assert text.endswith(f"speed 12 (target >= 10).\n\n{end}\nafter\n")
    assert "old" not in text
    assert "speed 8" not in text


def test_results_without_the_section_are_refused():
    with pytest.raises(ValueError, match="no section"):
        with_section("# Results", "speed", "speed", GOOD)


def test_parts_are_measured_one_by_one_and_kept_apart(tmp_path):
    results = tmp_path / "results.md"
    marks = [
        f"<!-- {name}: written by its benchmark -->\n<!-- end of {name} -->"
        for name in ("speed", "speed-other")
    ]
    results.write_text("\n".join(marks))
    parts = {"first": lambda options: GOOD, "other": lambda options: MISSED}
    files = {"docs": tmp_path, "results": results}
    assert run("speed", parts, arguments=["--check", "--part", "first", "--write"], **files) == 0
    assert not (tmp_path / "speed-other.md").exists()
    assert run("speed", parts, arguments=["--check", "--write"], **files) == 1
    first, other = results.read_text().split("<!-- end of speed -->")
    assert "benchmarks.speed --part first --write" in first
    assert "speed 12" in first
    assert "benchmarks.speed --part other --write" in other
    assert "speed 8" in other


def test_a_quick_look_is_at_the_first_part_unless_it_names_another():
    seen = []
    parts = {
        "first": lambda options: seen.append("first") or GOOD,
        "other": lambda options: seen.append("other") or GOOD,
    }
    run("speed", parts, arguments=["--quick"])
    run("speed", parts, arguments=["--quick", "--part", "other"])
    assert seen == ["first", "other"]
