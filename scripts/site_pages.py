"""Hooks of mkdocs.yml: pages of the site that are no files of docs/, and links that lead out of it.

The pages beside the README, the examples with their sources, and the API by its docstrings are made when the
site is built. A link to a source file of the checkout stays as text: the site does not have it.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):(<code>)~?")
API = {  # page -> its title, and whole modules or single names
    "worker": (
        "Workers and readers",
        [
            "scar.initialize",
            "scar.join",
            "scar.Worker",
            "scar.PullFuture",
            "scar.connect",
            "scar.Reader",
            "scar.BatchSampler",
        ],
    ),
    "job": (
        "Jobs, tables and blocks",
        ["scar.tables", "scar.block_cuts", "scar.keyed_rows", "scar.load_job"],
    ),
    "rules": ("Update rules", ["scar.update_rules"]),
    "schedules": ("Learning rates by clock", ["scar.schedules"]),
    "initial": ("Initial values", ["scar.initial_values", "scar.init_from", "scar.given_rows"]),
    "checkpoints": ("Checkpoints", ["scar.checkpoints"]),
    "strategies": ("Strategies", ["scar.strategies", "scar.worker_strategies"]),
    "state": ("State of a worker", ["scar.worker_state"]),
    "stopping": ("Early stopping and snapshots", ["scar.EarlyStopping", "scar.Divergence", "scar.Snapshot"]),
    "torch": ("PyTorch", ["scar.torch"]),
    "cluster": ("A cluster in a script", ["scar_local.cluster.LocalCluster", "scar_local.function_training"]),
    "callbacks": (
        "Callbacks: TensorBoard, MLflow, W&B",
        ["scar.callbacks", "scar.callbacks.tensorboard", "scar.callbacks.mlflow", "scar.callbacks.wandb"],
    ),
    "errors": ("Errors", ["scar.errors"]),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    made = {name: (ROOT / name).read_text() for name in BESIDE if (ROOT / name).exists()}
    made["index.md"] = (ROOT / "README.md").read_text()
    made["adr/index.md"] = _decisions()
    made |= _example_pages() | _api_pages()
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def _example_pages() -> dict[str, str]:
    """A page for each training file of examples/, by its docstring, and one that lists them."""
    pages, rows = {}, []
    for path in sorted((ROOT / "examples").glob("*.py")):
        source = path.read_text()
        about = (ast.get_docstring(ast.parse(source)) or path.stem).split("\n\n")[0].replace("\n", " ")
        picture = f"![{path.name}: the loss, and a server killed](../images/examples/{path.stem}.svg)"
        pages[f"examples/{path.stem}.md"] = (
            f"# {path.name}\n\n{about}\n\n{picture}\n\n```python\n{source}```\n"
        )
        rows.append(f"| [{path.name}]({path.stem}.md) | {about} |")
    table = "\n".join(["| file | what it trains |", "| --- | --- |", *rows])
    pages["examples/index.md"] = (
        "# Examples\n\n`scar train examples/NAME.py` runs each of them, `scar jobs plot` draws how it went."
        f" The pages show runs in which a server is killed at the dashed line.\n\n{table}\n"
    )
    return pages


def _api_pages() -> dict[str, str]:
    pages, rows = {}, []
    for name, (title, parts) in API.items():
        pages[f"api/{name}.md"] = "\n\n".join([f"# {title}", *(f"::: {part}" for part in parts), ""])
        rows.append(f"| [{title}]({name}.md) | {', '.join(f'`{part}`' for part in parts)} |")
    table = "\n".join(["| | |", "| --- | --- |", *rows])
    return pages | {"api/index.md": f"# API\n\nFrom the docstrings of the sources.\n\n{table}\n"}


def _decisions() -> str:
    """The page that lists docs/adr."""
    lines = []
    for path in sorted((ROOT / "docs" / "adr").glob("*.md")):
        title = path.read_text().split("\n", 1)[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(["# Decisions", "", *lines, ""])


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Links as they are in the checkout become links of the site, or text where it has no such page."""
    here = page.file.src_uri
    source = here if here in BESIDE or here == "index.md" else f"docs/{here}"

    def rewrite(match: re.Match[str]) -> str:
        image, text, link, anchor = match.groups(default="")
        if not link or "://" in link:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        found = _page_of(path)
        if files.get_file_from_path(found):
            return f"{image}[{text}]({posixpath.relpath(found, posixpath.dirname(here) or '.')}{anchor})"
        return text if (ROOT / path).exists() else match[0]  # the strict build names what is nowhere

    return LINK.sub(rewrite, markdown)


def _page_of(path: str) -> str:
    """What a path of the checkout is called on the site, if it is there."""
    if path == "README.md":
        return "index.md"
    if path == "docs/adr":
        return "adr/index.md"
    if path.startswith("examples/"):
        return path.removesuffix(".py") + ".md"
    return path.removeprefix("docs/")


def on_page_content(html: str, **_: Any) -> str:
    """Roles of docstrings, such as :class:, are not shown."""
    return ROLE.sub(r"\1", html)
