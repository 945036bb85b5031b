"""What a pipeline is run from: Spark's own specification, or one file of definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlparse

from trilogue.spark.errors import SourceError


class Engine(StrEnum):
    """What orders and runs the flows of a pipeline."""

    DECLARATIVE = "declarative"
    STREAMING = "streaming"


ENGINE_FILE = "engine"
SPECIFICATIONS = (".yml", ".yaml")
DEFINITIONS = (".py", ".sql")


class PipelineError(SourceError, RuntimeError):
    """A pipeline cannot be run, or its run failed; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDefinition:
    """A pipeline: its files, and where its tables and checkpoints are.

    `storage` is a URI, as Spark has it; `folder` is local, and has the logs of the session and,
    where nothing else is configured, tables and their catalog.
    """

    name: str
    storage: str
    folder: Path
    root: Path
    files: tuple[Path, ...]
    catalog: str | None = None
    database: str | None = None
    configuration: Mapping[str, str] = field(default_factory=dict)


def load_definition(
    path: Path, storage: Path | None = None, configuration: Mapping[str, str] | None = None
) -> PipelineDefinition:
    """Return the pipeline of a specification (spark-pipeline.yml), or of one Python or SQL file.

    `storage`: in place of that of the specification, or of the folder NAME-pipeline beside which
    the command runs. `configuration` is added to that of the specification. Raises PipelineError.
    """
    if not path.is_file():
        raise PipelineError(f"{path}: no such file")
    given = dict(configuration or {})
    if path.suffix in SPECIFICATIONS:
        return _load_specification(path, storage, given)
    if path.suffix not in DEFINITIONS:
        kinds = ", ".join((*DEFINITIONS, *SPECIFICATIONS))
        raise PipelineError(f"{path}: a pipeline is a file of one of these kinds: {kinds}")
    folder = (storage or Path(f"{path.stem}-pipeline")).resolve()
    return PipelineDefinition(
        name=path.stem,
        storage=folder.as_uri(),
        folder=folder,
        root=path.parent.resolve(),
        files=(path.resolve(),),
        configuration=given,
    )


def claim_folder(definition: PipelineDefinition, engine: Engine) -> None:
    """Note in the folder whose checkpoints it has; PipelineError where they are the other engine's.

    The other engine would not find them, and would write all rows once more.
    """
    file = definition.folder / ENGINE_FILE
    try:
        found = file.read_text().strip()
    except FileNotFoundError:
        definition.folder.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{engine}\n")
        return
    if found != engine:
        raise PipelineError(
            f"{definition.folder} was updated by the {found} engine, and its checkpoints mean "
            "nothing to the other: run it as before, or give another --storage"
        )


def _load_specification(
    path: Path, storage: Path | None, configuration: dict[str, str]
) -> PipelineDefinition:
    from pyspark.errors import PySparkException
    from pyspark.pipelines.cli import load_pipeline_spec
    from yaml import YAMLError

    try:
        found = load_pipeline_spec(path)
    except (PySparkException, YAMLError, TypeError, KeyError, AttributeError) as error:
        raise PipelineError(f"{path}: {error}") from error
    root = path.parent.resolve()
    files = [
        file
        for library in found.libraries
        for file in sorted(root.glob(library.include))
        if file.is_file() and "__pycache__" not in file.parts
    ]
    wrong = [file for file in files if file.suffix not in DEFINITIONS]
    if wrong or not files:
        problem = f"{wrong[0]} is neither Python nor SQL" if wrong else "it names no file"
        raise PipelineError(f"{path}: libraries: {problem}")
    uri = urlparse(found.storage)
    local = Path(uri.path if uri.scheme == "file" else f"{found.name}-pipeline")
    folder = (storage or (root / found.storage if not uri.scheme else local)).resolve()
    is_local = storage is not None or uri.scheme in {"", "file"}
    return PipelineDefinition(
        name=found.name,
        storage=folder.as_uri() if is_local else found.storage,
        folder=folder,
        root=root,
        files=tuple(files),
        catalog=found.catalog,
        database=found.database,
        configuration={**found.configuration, **configuration},
    )
