"""`python -m scripts.dashboard`: writes the Grafana dashboard that `greenroom deploy monitoring` copies."""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.builders.common import VizLegendOptions
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

from greenroom.cli.deploy import TEMPLATES

FILE = TEMPLATES / "monitoring" / "greenroom-dashboard.json"

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_APPS = 'app=~"$app"'


def dashboard_json() -> str:
    """The dashboard, as Grafana imports it."""
    dashboard = (
        Dashboard("greenroom")
        .uid("greenroom")
        .description("Runs, latency, models and servers of greenroom")
        .tags(["greenroom"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .editable()
        .with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(
            QueryVariable("app")
            .label("App")
            .datasource(_SOURCE)
            .query("label_values(greenroom_runs_total, app)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(multi=True)
            .include_all(include_all=True)
            .all_value(".*")
        )
    )
    _add_runs(dashboard)
    _add_latency(dashboard)
    _add_models(dashboard)
    _add_servers(dashboard)

    document = json.loads(JSONEncoder().encode(dashboard.build()))
    for number, panel in enumerate(document["panels"], 1):
        panel["id"] = number
    return json.dumps(document, indent=2) + "\n"


def _add_runs(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Runs"))
    dashboard.with_panel(
        _panel(
            "Ended runs by status",
            "A run that waits for a person ends as `waiting`, and again when it is resumed.",
            "reqps",
            {"{{status}}": f"sum by (status) ({_rate('greenroom_runs_total')})"},
        )
    )
    dashboard.with_panel(
        _panel(
            "Failed runs",
            "Share of the ended runs that failed.",
            "percentunit",
            {"{{app}}": f"{_failed()} / sum by (app) ({_rate('greenroom_runs_total')})"},
        ).min(0)
    )
    dashboard.with_panel(
        _panel(
            "Running and queued runs",
            "Queued runs wait for an earlier run of their session.",
            "short",
            {
                "running": f"sum(greenroom_runs_running{{{_APPS}}})",
                "queued": f"sum(greenroom_runs_queued{{{_APPS}}})",
            },
        ).min(0)
    )
    dashboard.with_panel(
        _panel(
            "Requests that wait for a person",
            "Approvals, logins and questions without an answer.",
            "short",
            {"{{app}}": f"max by (app) (greenroom_requests_open{{{_APPS}}})"},
        ).min(0)
    )


def _add_latency(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Latency"))
    for title, description, metric in (
        ("Time to the first text", "Until the first chunk of a model's reply.", "greenroom_first_reply_seconds"),
        ("Time to the end", "Duration of runs, without their time in a queue.", "greenroom_run_duration_seconds"),
    ):
        queries = {
            f"p{percent}": f"histogram_quantile(0.{percent}, sum by (le) ({_rate(f'{metric}_bucket')}))"
            for percent in (50, 95, 99)
        }
        dashboard.with_panel(_panel(title, description, "s", queries).min(0))


def _add_models(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Models and tools"))
    dashboard.with_panel(
        _panel(
            "Tokens",
            "Per second, as models report them.",
            "short",
            {
                "{{model}} in": f"sum by (model) ({_rate('greenroom_model_input_tokens_total')})",
                "{{model}} out": f"sum by (model) ({_rate('greenroom_model_output_tokens_total')})",
            },
        )
    )
    dashboard.with_panel(
        _panel(
            "Cost per hour",
            "By the table of prices; without models whose price is unknown.",
            "short",
            {"{{model}} ({{currency}})": f"3600 * sum by (model, currency) ({_rate('greenroom_model_cost_total')})"},
        ).min(0)
    )
    dashboard.with_panel(
        _panel(
            "Calls of models and tools",
            "Per second.",
            "reqps",
            {
                "{{model}}": f"sum by (model) ({_rate('greenroom_model_calls_total')})",
                "{{tool}}": f"sum by (tool) ({_rate('greenroom_tool_calls_total')})",
            },
        )
    )
    dashboard.with_panel(
        _panel(
            "Errors by kind",
            "Failed calls of models and tools per second, by the class or the code of the error.",
            "reqps",
            {
                "{{model}}: {{error}}": f"sum by (model, error) ({_rate('greenroom_model_errors_total')})",
                "{{tool}}: {{error}}": f"sum by (tool, error) ({_rate('greenroom_tool_errors_total')})",
            },
        )
    )


def _add_servers(dashboard: Dashboard) -> None:
    dashboard.with_row(Row("Servers"))
    dashboard.with_panel(
        _panel("Servers", "By release.", "short", {"{{version}}": "count by (version) (greenroom_build_info)"}).min(0)
    )
    dashboard.with_panel(
        _panel(
            "Shards of sessions by server",
            "With PostgreSQL: 256 altogether, but for moments when a server takes over another's.",
            "short",
            {"{{replica}}": "max by (replica) (greenroom_shards)"},
        ).min(0)
    )
    dashboard.with_panel(
        _panel(
            "Size of the database",
            "Servers on one PostgreSQL report the same size.",
            "bytes",
            {"{{instance}}": "greenroom_database_bytes"},
        ).min(0)
    )
    dashboard.with_panel(
        _panel(
            "Free disk space", "Where the SQLite file is.", "bytes", {"{{instance}}": "greenroom_disk_free_bytes"}
        ).min(0)
    )


def _rate(metric: str) -> str:
    return f"rate({metric}{{{_APPS}}}[$__rate_interval])"


def _failed() -> str:
    """The rate of failed runs by app, which is 0 for an app without any."""
    failed = f'sum by (app) (rate(greenroom_runs_total{{{_APPS}, status="failed"}}[$__rate_interval]))'
    return f"({failed} or 0 * sum by (app) ({_rate('greenroom_runs_total')}))"


def _panel(title: str, description: str, unit: str, queries: dict[str, str]) -> Panel:
    """A panel with time series: expressions by their legend."""
    legend = (
        VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(show_legend=True)
    )
    panel = Panel().title(title).description(description).datasource(_SOURCE).unit(unit).legend(legend)
    for ref_id, (legend_format, expression) in zip("ABC", queries.items(), strict=False):
        query = Dataquery().ref_id(ref_id).expr(expression).legend_format(legend_format).range().datasource(_SOURCE)
        panel.with_target(query)
    return panel.span(12).height(8)


def main() -> None:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(dashboard_json(), "utf-8")
    print(Path(FILE).resolve())


if __name__ == "__main__":
    main()
