"""The status page of a service or driver: what it decides, and whether all is well."""

import html
import time
from typing import Any

from ganger.serving.metrics import Metrics

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>Ganger: {state}</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; margin: 0 0 1.5rem; }}
th {{ text-align: left; font-weight: normal; }}
td {{ text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }}
th, td {{ padding: .2rem .5rem; border-bottom: 1px solid #8884; }}
.well {{ color: #197b30; }} .alarm {{ color: #c0261c; font-weight: bold; }}
@media (prefers-color-scheme: dark) {{ .well {{ color: #6fd58a; }} .alarm {{ color: #ff8a80; }} }}
</style></head><body>
<h1>Ganger</h1><p class="{kind}">{state}</p>
{tables}
<p><a href="metrics">metrics</a></p></body></html>
"""


def alarms(figures: dict[str, float]) -> list[str]:
    """What somebody should look at."""
    found = []
    if figures.get("ganger_breaker_open"):
        found.append("the breaker is open: the fallback decides")
    if figures.get("ganger_drift", 0) > 1:
        found.append("the cluster is unlike what the policy was trained on")
    return found


def status_page(about: dict[str, Any], metrics: Metrics) -> str:
    """HTML that needs nothing else."""
    figures = metrics.figures()
    wrong = alarms(figures)
    up_s = time.time() - metrics.started_s
    shown = {name.removeprefix("ganger_").replace("_", " "): f for name, f in figures.items()}
    rows = {"up for": f"{up_s:,.0f} s"} | {name: f"{figure:,.6g}" for name, figure in shown.items()}
    if count := figures.get("ganger_decision_seconds_count"):
        mean_ms = 1e3 * figures["ganger_decision_seconds_sum"] / count
        rows["mean time to decide"] = f"{mean_ms:.2f} ms"
    return _PAGE.format(
        state=html.escape("; ".join(wrong).capitalize() or "All is well"),
        kind="alarm" if wrong else "well",
        tables=_table(about) + _table(rows),
    )


def _table(rows: dict[str, Any]) -> str:
    lines = (
        f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table>{''.join(lines)}</table>"
