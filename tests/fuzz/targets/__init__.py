"""All targets, by name."""

from fuzz.target import Target
from fuzz.targets.checkpoints import CHECKPOINT_TARGETS
from fuzz.targets.companions import COMPANION_TARGETS
from fuzz.targets.files import FILE_TARGETS
from fuzz.targets.graphs import GRAPH_TARGETS
from fuzz.targets.programs import PROGRAM_TARGETS

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *FILE_TARGETS,
        *COMPANION_TARGETS,
        *CHECKPOINT_TARGETS,
        *PROGRAM_TARGETS,
        *GRAPH_TARGETS,
    )
}
