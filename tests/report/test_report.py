"""Pages in a real browser, and their figures against the files that they are from."""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from browser import Page, chromium

from ganger.cli import main
from ganger.errors import ConfigError, MissingExtraError
from ganger.report import write_report

pytest.importorskip("matplotlib")
parquet = pytest.importorskip("pyarrow.parquet")

JOBS, WINDOWS, EXECUTORS = 12, 4, 7


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three schedulers under two loads, with a page."""
    path = tmp_path_factory.mktemp("comparison") / "fair & <others>"
    assert not main([
        "compare", "--against", "fair,fifo,srpt", "--jobs", str(JOBS), "--episodes", str(WINDOWS),
        "--executors", str(EXECUTORS), "--load-sweep", "0.5:0.8:0.3", "--out", str(path),
        "--report", "--json",
    ])  # fmt: skip
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training run as one leaves its files."""
    path = tmp_path_factory.mktemp("runs") / "mine"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"workload": "synthetic", "objective": "mean"}))
    lines = []
    for step in range(1, 301):
        lines.append({
            "step": step, "elapsed_s": step * 2.0, "decisions": step * 100,
            "decisions_per_s": 50.0, "acting_decisions_per_s": 90.0, "lag_mean": 1.0, "lag_max": 2,
            "learning_decisions_per_s": 80.0, "learner_idle_share": 0.1, "actor_idle_share": 0.2,
            "importance_mean": 1.0, "importance_clipped": 0.3, "entropy": 2.0 / step, "kl": 0.01,
            "explained_variance": None, "recent_jct_s": 40.0, "recent_fair_jct_s": 50.0,
            "recent_ratio": 0.8,
        })  # fmt: skip
    for step, ratio in ((100, 0.9), (200, 0.8), (300, 0.85)):
        lines.append({
            "step": step, "validation_ratio": ratio, "validation_ratio_argmax": ratio,
            "validation_ratio_sampled": ratio + 0.1, "validation_to_heuristic": ratio + 0.15,
        })  # fmt: skip
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "stop_reason.json").write_text(json.dumps({"reason": "updates", "step": 300}))
    return path


@pytest.fixture(scope="module")
def page(comparison: Path) -> Iterator[Page]:
    with chromium() as browser:
        opened = browser.open(comparison / "report.html")
        opened.wait_for("document.getElementById('gantts').dataset.drawn")
        yield opened


def cells(page: Page, table: str) -> list[list[str | float]]:
    """A table as a reader sees it; of a figure, its value."""
    found = page.evaluate(
        f"[...document.querySelectorAll('#{table} tbody tr')].map(row => [...row.cells].map(cell =>"
        " cell.querySelector('data') ? cell.querySelector('data').value : cell.textContent))"
    )
    return [[_value(cell) for cell in row] for row in found]


def _value(cell: str) -> str | float:
    try:
        return float(cell)
    except ValueError:
        return cell


def painted(page: Page, canvas: str) -> int:
    """Different colours in a canvas."""
    colours = page.evaluate(
        f"(() => {{ const c = document.getElementById('{canvas}'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; return new Set(new Uint32Array(d.buffer))"
        ".size; })()"
    )
    return int(colours)


# --- in the browser


def test_the_page_complains_of_nothing_and_asks_for_nothing_but_itself(page: Page) -> None:
    assert page.complaints == []
    assert [address.rpartition("/")[2] for address in page.requests] == ["report.html"]


def test_the_figures_on_the_page_are_those_of_its_json_and_of_the_parquet_rows(
    page: Page, comparison: Path
) -> None:
    summary = json.loads((comparison / "summary.json").read_bytes())
    embedded = page.evaluate("JSON.parse(document.getElementById('report-data').textContent)")
    assert embedded["summary"] == summary
    shown = [row for row in summary["schedulers"] if row["load"] == 0.8]
    figures = {str(row[0]): row[1:] for row in cells(page, "figures")}
    assert len(figures) == len(shown) == 3
    rows = parquet.read_table(comparison / "jobs.parquet").to_pylist()
    for row in shown:
        assert figures[row["scheduler"]] == [
            row[name] for name in ("mean_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s",
                                   "mean_wait_s", "mean_slowdown", "utilisation")
        ]  # fmt: skip
        jct_s = [job["turnaround_time"] for job in rows
                 if job["load"] == 0.8 and job["scheduler"] == row["scheduler"]]  # fmt: skip
        assert len(jct_s) == JOBS * WINDOWS
        assert figures[row["scheduler"]][0] == pytest.approx(np.mean(jct_s))
        assert figures[row["scheduler"]][2] == pytest.approx(np.percentile(jct_s, 95))


def test_what_is_read_as_a_figure_is_its_value_rounded(page: Page) -> None:
    both = page.evaluate(
        "[...document.querySelectorAll('#figures data')].map(d => [d.value, d.textContent])"
    )
    for value, text in both:
        shown = float(re.sub(r"[^\d.]", "", text)) / (100 if text.endswith("%") else 1)
        assert shown == pytest.approx(float(value), abs=0.051)


def test_every_scheduler_has_a_gantt_chart_that_is_drawn(page: Page) -> None:
    assert page.evaluate("document.querySelectorAll('#gantts canvas').length") == 3
    for k in range(3):
        assert painted(page, f"gantt-{k}") > 8


def test_the_task_under_the_mouse_is_told_as_the_rows_have_it(page: Page, comparison: Path) -> None:
    tasks = parquet.read_table(comparison / "tasks.parquet").to_pylist()
    name = page.evaluate("document.querySelector('#gantts figcaption b').textContent")
    own = [task for task in tasks if task["scheduler"] == name]
    longest = max(own, key=lambda task: task["finish_time"] - task["starting_time"])
    page.evaluate("document.getElementById('gantts').scrollIntoView()")
    x, y, width, height = page.evaluate(
        "(({x, y, width, height}) => [x, y, width, height])"
        "(document.getElementById('gantt-0').getBoundingClientRect())"
    )
    end_s = max(task["finish_time"] for task in tasks)
    middle_s = (longest["starting_time"] + longest["finish_time"]) / 2
    page.mouse(
        "mouseMoved",
        x + width * middle_s / end_s,
        y + (longest["executor"] + 0.5) / EXECUTORS * (height - 22),
    )
    said = page.evaluate("document.getElementById('gantt-tip').textContent")
    assert said.startswith(f"job {longest['job_id']}, stage {longest['stage'] + 1}: ")
    assert f"executor {longest['executor']}\n" in said
    begin, end = (
        float(v.replace(",", "")) for v in re.findall(r"([\d.,]+) to ([\d.,]+) s", said)[0]
    )
    assert begin == pytest.approx(longest["starting_time"], abs=2e-3)
    assert end == pytest.approx(longest["finish_time"], abs=2e-3)


def test_keys_reach_the_chart_go_from_bar_to_bar_zoom_and_let_go(page: Page) -> None:
    told = "document.getElementById('gantt-tip').textContent"
    shown = "document.getElementById('gantt-range').textContent"
    page.mouse("mouseMoved", 300, 300)  # it rests where the chart will scroll to
    page.evaluate("scrollTo(0, 0); document.querySelector('button[data-do=all]').focus()")
    whole = page.evaluate(shown)
    page.press("Tab")
    assert page.evaluate("document.activeElement.id") == "gantt-0"
    first = page.evaluate(told)
    assert first.startswith("job ")
    page.press("ArrowRight")
    assert page.evaluate(told) not in ("", first)
    page.press("+")
    assert page.evaluate(shown) != whole
    page.press("0")
    assert page.evaluate(shown) == whole
    page.press("Escape")
    assert page.evaluate(told) == ""


def test_the_wheel_zooms_a_chart_that_has_the_focus_and_else_scrolls(page: Page) -> None:
    shown = "document.getElementById('gantt-range').textContent"
    page.evaluate(
        "document.activeElement.blur(); document.getElementById('gantts').scrollIntoView()"
    )
    x, y = page.evaluate(
        "(({x, y}) => [x + 50, y + 50])(document.getElementById('gantt-0').getBoundingClientRect())"
    )
    whole = page.evaluate(shown)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-1)
    assert page.evaluate(shown) == whole
    page.evaluate("document.getElementById('gantt-0').focus()")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200)
    page.wait_for(f"{shown} !== '{whole}'")
    page.evaluate("document.querySelector('button[data-do=all]').click()")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_fits_a_telephone_in_both_themes(page: Page, dark: bool) -> None:
    page.resize(400, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    axis = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
    levels = [sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in (paper, axis)]
    assert (levels[0] < 64 and levels[1] > 140) if dark else (levels[0] > 240 and levels[1] < 128)
    page.resize(1200)


def test_everything_drawn_has_words_for_who_cannot_see_it(page: Page) -> None:
    alts = page.evaluate(
        "[...document.querySelectorAll('figure svg, canvas')].map(e => e.getAttribute('role') +"
        " ': ' + e.getAttribute('aria-label'))"
    )
    assert len(alts) >= 9
    assert all(re.match(r"img: .{25}", alt) for alt in alts), alts
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_the_page_prints(page: Page) -> None:
    assert page.pdf().startswith(b"%PDF")


def test_pages_of_runs_and_workloads_complain_of_nothing(run: Path, tmp_path: Path) -> None:
    training = write_report(str(run)).out
    workload = write_report("synthetic", tmp_path / "workload.html", executors=50).out
    with chromium() as browser:
        for file, table, rows in ((training, "validations", 3), (workload, "distributions", 7)):
            page = browser.open(file)
            assert page.complaints == []
            assert len(page.requests) == 1
            assert len(cells(page, table)) == rows
            page.resize(400, dark=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= 400


# --- without


def test_the_tasks_that_are_kept_are_those_of_the_jobs_that_are_kept(comparison: Path) -> None:
    tasks = parquet.read_table(comparison / "tasks.parquet").to_pylist()
    jobs = parquet.read_table(comparison / "jobs.parquet").to_pylist()
    ends: dict[tuple[str, str], float] = {}
    for task in tasks:
        assert (task["window"], task["executors"], task["load"]) == (0, EXECUTORS, 0.8)
        key = task["scheduler"], task["job_id"]
        ends[key] = max(ends.get(key, 0.0), task["finish_time"])
    kept = {(job["scheduler"], job["job_id"]): job["finish_time"] for job in jobs
            if job["window"] == 0 and job["load"] == 0.8}  # fmt: skip
    assert ends == pytest.approx(kept)


def test_names_are_escaped_and_the_page_tells_its_size(tmp_path: Path) -> None:
    log = tmp_path / "a<b>&c.jobs.jsonl"
    assert not main(["convert", _native(tmp_path), str(log)])
    written = write_report(str(log), tmp_path / "page.html")
    text = written.out.read_text()
    assert "a&lt;b&gt;&amp;c" in text and "a<b>" not in text
    assert f"One file of {written.size}" in text


def _native(path: Path) -> str:
    file = path / "few.swf"
    rows = [[k, 60 * k, 0, 100, 2, -1, -1, 2, 200, -1, 1, 1, -1, -1, -1, -1, -1, -1]
            for k in range(1, 9)]  # fmt: skip
    file.write_text("; MaxProcs: 8\n" + "\n".join(" ".join(map(str, row)) for row in rows) + "\n")
    return str(file)


def test_a_training_run_is_told_with_its_best_validation_and_why_it_ended(run: Path) -> None:
    text = unescape(write_report(str(run)).out.read_text())
    assert "20.0 % lower than fair's, and 5.0 % lower than that of the best heuristic" in text
    assert "ended because that is as many updates as wanted" in text


def test_pictures_are_written_where_they_are_wanted(comparison: Path, tmp_path: Path) -> None:
    written = write_report(str(comparison), tmp_path / "page.html", tmp_path / "pictures")
    names = {file.name for file in written.images}
    assert {"cdf.svg", "cdf.png", "gantt.png", "load-7.svg"} <= names
    assert all(file.stat().st_size > 1000 for file in written.images)


def test_the_same_files_give_the_same_page(comparison: Path, tmp_path: Path) -> None:
    pages = [write_report(str(comparison), tmp_path / f"{k}.html").out for k in range(2)]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_what_is_no_report_is_one_line(
    tmp_path: Path, run: Path, comparison: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="--executors is for a workload"):
        write_report(str(run), executors=5)
    (tmp_path / "half" / "parts").mkdir(parents=True)
    (tmp_path / "half" / "settings.json").write_text("{}")
    with pytest.raises(ConfigError, match="has not ended"):
        write_report(str(tmp_path / "half"))
    (tmp_path / "half" / "summary.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"summary\.json"):
        write_report(str(tmp_path / "half"))


def test_without_matplotlib_the_extra_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"ganger\[report\]"):
        write_report(str(run))
