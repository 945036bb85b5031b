"""`trilogue pipeline`: runs declared pipelines on Spark, over the data that exist now."""

from __future__ import annotations

import gc
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from trilogue.cli.cluster import FAILED, INTERRUPTED, parse_pairs
from trilogue.cli.options import USAGE_ERROR, exit_with_error

app = typer.Typer(help="Run declared pipelines of tables, views and sinks on Spark.")
app.info.no_args_is_help = True


FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        show_default=False,
        help="Definitions (pyspark.pipelines) in Python or SQL, or a spark-pipeline.yml.",
    ),
]
StorageOption = Annotated[
    Path | None,
    typer.Option(
        "--storage",
        metavar="DIR",
        help="Checkpoints, tables, catalog and logs (default: that of the spark-pipeline.yml, or "
        "NAME-pipeline).",
        show_default=False,
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        "-c",
        metavar="KEY=VALUE",
        help="A setting of Spark, or one that FILE reads by spark.conf.get(KEY).",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="A Spark cluster (default: this machine)."),
]
RemoteOption = Annotated[
    str | None,
    typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://HOST:PORT."),
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Check the pipeline; run no flow.")]
StreamingOption = Annotated[
    bool,
    typer.Option(
        "--streaming",
        help="Run each flow as a plain query of structured streaming, without Spark Connect.",
    ),
]
RefreshOption = Annotated[
    list[str] | None,
    typer.Option("--refresh", metavar="TABLE", help="Update this alone; repeat it for more."),
]
FullOption = Annotated[
    list[str] | None,
    typer.Option(
        "--full-refresh", metavar="TABLE", help="Empty it, and compute it from the beginning."
    ),
]


@app.command()
def run(
    file: FileArgument,
    *,
    storage: StorageOption = None,
    streaming: StreamingOption = False,
    conf: ConfOption = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    dry_run: DryOption = False,
    refresh: RefreshOption = None,
    full_refresh: FullOption = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="The same for all tables.")
    ] = False,
) -> None:
    """Update all tables and sinks of a pipeline from what its sources have now, and end."""
    if master and remote:
        exit_with_error("give one of --master and --remote", USAGE_ERROR)
    if full_refresh_all and (refresh or full_refresh):
        exit_with_error("--full-refresh-all already names all tables", USAGE_ERROR)
    if streaming and (refresh or full_refresh or full_refresh_all or remote):
        exit_with_error("--streaming takes no --refresh, --full-refresh and --remote", USAGE_ERROR)
    configuration = parse_pairs(conf, "--conf")
    gc.freeze()
    gc.enable()  # a long run makes garbage
    from trilogue.spark.pipelines.definition import PipelineError, load_definition

    try:
        definition = load_definition(file, storage, configuration)
        if streaming:
            from trilogue.spark.pipelines.streaming import run_streaming

            run_streaming(definition, _print_event, is_dry=dry_run, master=master)
        else:
            from trilogue.spark.pipelines.declarative import Refresh, run_declarative

            run_declarative(
                definition,
                _print_event,
                refresh=Refresh(refresh or (), full_refresh or (), full_refresh_all),
                is_dry=dry_run,
                master=master,
                remote=remote,
            )
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except ImportError as error:  # PySpark's own sentence where grpcio is missing
        exit_with_error(f"{error}: pip install 'trilogue[pipeline]'", FAILED)
    except (PipelineError, RuntimeError) as error:
        exit_with_error(str(error), FAILED)
    print(f"{definition.name}: {'valid' if dry_run else 'up to date'}")


def _print_event(time: datetime, text: str) -> None:
    print(f"{time.astimezone():%H:%M:%S} {text}", flush=True)
