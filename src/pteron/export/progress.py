"""The stages of compiling a module, shown as a bar while stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

STAGES = ("exporting", "importing ExecuTorch", "decomposing", "lowering", "writing", "loading")
Enter: TypeAlias = Callable[[str], None]  # takes one of STAGES; several programs repeat the last three


@contextmanager
def shown_stages(module: str) -> Iterator[Enter]:
    """A callback that shows the stage. The bar disappears at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda stage: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(16), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{module}: {STAGES[0]}", total=len(STAGES))
        yield lambda stage: progress.update(
            task, description=f"{module}: {stage}", completed=STAGES.index(stage)
        )
