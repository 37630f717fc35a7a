"""The results of `doctor`, and these as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pteron.tools.compare.report import NodeResult, Verdict
from pteron.tools.doctor.probes import Probes
from pteron.tools.doctor.replay import Checked
from pteron.tools.text import Line, columns, counted, features_text, html_text, human_bytes, human_time

_ISSUES = "https://github.com/pteron/pteron/issues/new/choose"
_LIMITS_PER_ROW = 2
_FEATURES = ("shader-f16", "subgroup", "timestamp-query")


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """A kernel: how often it was compared, how often it was wrong, and its worst error."""

    kernel: str
    operators: tuple[str, ...]
    checks: int
    wrong: int
    of_tolerance: float  # the largest error, as a multiple of what is allowed
    where: str = ""  # of the first wrong result: what ran, at which sizes
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """A target without some parts of the device, and the kernels that are wrong on it."""

    without: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return not self.wrong


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """An adapter, its kernels, and what to do about wrong ones."""

    subject: str  # the built-in set, or a program
    adapter: str
    kind: str
    backend: str
    driver: str
    library: str
    features: tuple[str, ...]
    subgroup_size: int
    limits: Mapping[str, int]
    probes: Probes
    loop_limit_expected: int  # that plans assume; 0: none
    versions: Mapping[str, str]
    platform: str
    kernels: tuple[KernelCheck, ...]
    trials: tuple[Trial, ...]  # simpler targets that were tried
    without: tuple[str, ...] | None  # parts to do without; none are needed: (), none help: None
    exceptions: tuple[str, ...]  # parts that programs do without from now on
    file: str  # of the adapter's exceptions
    is_written: bool
    seconds: float

    @property
    def wrong(self) -> tuple[KernelCheck, ...]:
        """The kernels that give wrong numbers."""
        return tuple(check for check in self.kernels if check.wrong)

    @property
    def is_loop_limit_unknown(self) -> bool:
        """Whether loops end before plans assume."""
        found = self.probes.loop_limit or 0
        return found > 0 and not 0 < self.loop_limit_expected <= found

    @property
    def is_healthy(self) -> bool:
        """Whether programs give right numbers from now on."""
        is_right = not self.wrong or (self.without is not None and {*self.without} <= {*self.exceptions})
        return is_right and not self.is_loop_limit_unknown

    def __str__(self) -> str:
        return "\n".join(doctor_lines(self))

    def _repr_html_(self) -> str:
        return html_text(doctor_lines(self))


def checks_of(found: Sequence[Checked]) -> tuple[KernelCheck, ...]:
    """Results by kernel, wrong ones first. If several kernels ran in a wrong step, those are blamed that were
    also wrong alone, else those that were never right, else all."""
    rows = [(each.name, row) for each in found for row in each.rows if row.kernels]
    rows = [(name, row) for name, row in rows if row.verdict in (Verdict.WITHIN, Verdict.DEPARTS)]
    right = {kernel for _, row in rows if row.verdict is Verdict.WITHIN for kernel in row.kernels}
    wrong = [row for _, row in rows if row.verdict is Verdict.DEPARTS]
    alone = {kernel for row in wrong if len(row.kernels) == 1 for kernel in row.kernels}
    checked: dict[str, list[tuple[str, NodeResult]]] = {}
    for name, row in rows:
        blamed: tuple[str, ...] = row.kernels
        if row.verdict is Verdict.DEPARTS:
            never_right = tuple(kernel for kernel in row.kernels if kernel not in right)
            blamed = tuple(kernel for kernel in row.kernels if kernel in alone) or never_right or row.kernels
        for kernel in blamed:
            checked.setdefault(kernel, []).append((name, row))
    unnamed = [(each.name, row) for each in found for row in each.wrong if not row.kernels]
    if unnamed:
        checked["(not known)"] = unnamed
    made = [_check(kernel, results) for kernel, results in checked.items()]
    return tuple(sorted(made, key=lambda check: (-check.wrong, check.kernel)))


def _check(kernel: str, results: Sequence[tuple[str, NodeResult]]) -> KernelCheck:
    wrong = [(name, row) for name, row in results if row.verdict is Verdict.DEPARTS]
    where = reason = ""
    if wrong:
        name, row = wrong[0]
        at = f" at {row.call}" if row.call else ""
        ran = f"{row.ran} in {name}" if row.ran not in ("", name) else name
        where, reason = f"{ran}{at}", row.reason
    return KernelCheck(
        kernel,
        tuple(dict.fromkeys(row.ran for _, row in results)),
        len(results),
        len(wrong),
        max((row.errors.of_tolerance for _, row in results if row.errors), default=0.0),
        where,
        reason,
    )


def doctor_lines(report: Diagnosis) -> Iterator[str]:
    """The adapter, the kernels that are wrong, and what to do."""
    yield Line(f"{report.adapter} ({report.kind}, {report.backend})", "title")
    yield from columns(list(_adapter_rows(report)), indent=2)
    yield ""
    checks = sum(check.checks for check in report.kernels)
    checked = f"{counted(len(report.kernels), 'kernel')} of {report.subject}, {counted(checks, 'comparison')}"
    if not report.wrong:
        yield Line(f"all are right: {checked}, {human_time(report.seconds)}", "good")
    else:
        verdict = counted(len(report.wrong), "wrong kernel")
        yield Line(f"{verdict} among {checked}, {human_time(report.seconds)}", "bad")
        for check in report.wrong:
            yield f"  {check.kernel}: {check.wrong} of {counted(check.checks, 'comparison')} wrong"
            yield f"    first in {check.where}"
            yield f"    {check.reason}"
        yield from _route_lines(report)
    yield from _loop_lines(report)
    if report.exceptions:
        yield f"  programs on this adapter do without: {', '.join(report.exceptions)} ({report.file})"
    if report.wrong or report.is_loop_limit_unknown:
        yield f"Please send all of this as an issue: {_ISSUES}"


def _route_lines(report: Diagnosis) -> Iterator[str]:
    for trial in report.trials:
        verdict = "all kernels are right" if trial.is_right else f"wrong: {', '.join(trial.wrong)}"
        yield f"  without {', '.join(trial.without)}: {verdict}"
    if report.without is None:
        yield Line("  no simpler route is right: try another driver or adapter", "bad")
    elif not report.is_written:
        parts = ", ".join(report.without)
        yield f"  `pteron doctor --write` makes programs on this adapter do without {parts}"


def _loop_lines(report: Diagnosis) -> Iterator[str]:
    found, expected = report.probes.loop_limit, report.loop_limit_expected
    if report.is_loop_limit_unknown:
        assumed = f"at most {expected:,}" if expected else "no limit"
        yield Line(f"loops end after {found:,} iterations; plans assume {assumed}", "bad")


def _adapter_rows(report: Diagnosis) -> Iterator[list[str]]:
    probes = report.probes
    yield ["driver", report.driver]
    yield ["WebGPU", report.library]
    yield ["versions", ", ".join(f"{name} {version}" for name, version in report.versions.items())]
    yield ["platform", report.platform]
    yield ["features", features_text({name: name in report.features for name in _FEATURES})]
    yield ["subgroups", f"of {report.subgroup_size}" if report.subgroup_size else "of no fixed size"]
    limits = [
        f"{name.removeprefix('max-')} {size:,}" for name, size in report.limits.items() if _is_shown(name)
    ]
    for place in range(0, len(limits), _LIMITS_PER_ROW):
        yield ["" if place else "limits", ", ".join(limits[place : place + _LIMITS_PER_ROW])]
    loops = f"end after {probes.loop_limit:,} iterations" if probes.loop_limit else "no limit found"
    yield ["loops", loops]
    if probes.launch_seconds is not None and probes.submission_seconds is not None:
        submission, launch = human_time(probes.submission_seconds), human_time(probes.launch_seconds)
        bandwidth = human_bytes(int(probes.bytes_per_second or 0))
        arithmetic = f"{(probes.operations_per_second or 0) / 1e9:,.1f} GFLOP/s in f32"
        yield ["timing", f"submission {submission}, launch {launch}, {bandwidth}/s, {arithmetic}"]
    if probes.host_bytes_free is not None:
        yield ["memory", f"{human_bytes(probes.host_bytes_free)} free on the host"]


def _is_shown(limit: str) -> bool:
    words = ("buffer-size", "binding-size", "compute", "storage-buffers-per")
    return limit.startswith("max-") and any(word in limit for word in words)
