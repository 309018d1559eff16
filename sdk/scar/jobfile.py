"""A user's training file: loaded by its path, and when that fails, the user's own lines of the traceback.

It has a ``job`` and a training function, or it is a script that calls :func:`scar.scripts.initialize`.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from scar.errors import ConfigError, ScarError
from scar.scripts import JobDeclared, declaring, training_as
from scar.tables import Job

if TYPE_CHECKING:
    from scar.callbacks import TrainingCallback
    from scar.training import Worker

OURS = (str(Path(__file__).parent), "<frozen ")  # files that say nothing to a user


@dataclass(frozen=True)
class TrainingFile:
    """What a user's file says. ``callbacks``: makes those to which `scar train` tells losses and failures, in
    its own process.
    """

    job: Job
    train: Callable[[Worker], object]
    callbacks: Callable[[], Sequence[TrainingCallback]]


def load_job(
    path: str, function: str = "train", arguments: Sequence[str] = ()
) -> tuple[Job, Callable[[Worker], object]]:
    """The job and the function of :func:`load_file`."""
    found = load_file(path, function, arguments)
    return found.job, found.train


def load_file(path: str, function: str = "train", arguments: Sequence[str] = ()) -> TrainingFile:
    """The ``job``, the training function and the ``callbacks`` of a user's file. Raises :class:`ConfigError`
    that says what the file lacks.

    ``arguments``: what the file finds in ``sys.argv`` behind its own path.
    """
    module = _load_module(path, function, arguments)
    job = getattr(module, "job", None)
    if not isinstance(job, Job):
        raise ConfigError(
            f"{path} has no job",
            "Add job = scar.Job(...), or call scar.initialize(scar.Job(...)) in a script",
        )
    callbacks = getattr(module, "callbacks", list)
    if not callable(callbacks):
        raise ConfigError(
            f"callbacks of {path} is no function",
            "Write def callbacks(): return [...], since workers load the file, too, and need none",
        )

    def make_callbacks() -> Sequence[TrainingCallback]:
        with _run_as_script(Path(path).resolve(), arguments):
            try:
                made: Sequence[TrainingCallback] = callbacks()
            except Exception as error:
                raise _load_error(path, error) from error
        return made

    return TrainingFile(job, _find_function(path, module, function), make_callbacks)


def load_function(path: str, function: str, arguments: Sequence[str]) -> Callable[[Worker], object]:
    """As :func:`load_job`, of a file that needs no job: it trains one that somebody else has started."""
    return _find_function(path, _load_module(path, function, arguments), function)


def _load_module(path: str, function: str, arguments: Sequence[str]) -> ModuleType:
    file = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(f"scar_job_{file.stem}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file", "Give the path of a training file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pickling and dataclasses look a class's module up
    with _run_as_script(file, arguments), declaring():
        try:
            spec.loader.exec_module(module)
            if not hasattr(module, "job") and not hasattr(module, function):
                runpy.run_path(str(file), run_name="__main__")
        except JobDeclared as declared:
            vars(module)["job"] = declared.job
            vars(module)[function] = partial(_train_by_script, file, arguments)
        except Exception as error:
            raise _load_error(path, error) from error
    return module


def _train_by_script(file: Path, arguments: Sequence[str], worker: Worker) -> None:
    """The training function of a script, of which ``sys.exit()`` is an end like any other."""
    with _run_as_script(file, arguments), training_as(worker):
        try:
            runpy.run_path(str(file), run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise


def _find_function(path: str, module: ModuleType, function: str) -> Callable[[Worker], object]:
    train: Callable[[Worker], object] | None = getattr(module, function, None)
    if not callable(train):
        raise ConfigError(f"{path} has no function {function}", f"Add def {function}(worker)")
    return train


@contextmanager
def _run_as_script(file: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Imports from the file's folder, and its arguments, as if Python ran it."""
    before, sys.argv = sys.argv, [str(file), *arguments]
    sys.path.insert(0, str(file.parent))
    try:
        yield
    finally:
        sys.path.remove(str(file.parent))
        sys.argv = before


def _load_error(path: str, error: Exception) -> ConfigError:
    if isinstance(error, ScarError):
        said = error.message
        step = error.next_step
    else:
        said = "".join(traceback.format_exception_only(error)).rstrip()
        step = ""
    lines = "".join(traceback.format_list(own_frames(error)))
    return ConfigError(
        f"{path} cannot be loaded:\n{lines}{said}", step or "Correct the file; nothing was started"
    )


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Where the error was raised, without frames of this package and of Python's importer."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if not frame.filename.startswith(OURS)]
