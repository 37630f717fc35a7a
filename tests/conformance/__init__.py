"""ExecuTorch's own test suites, run through Pteron.

    a suite's recipe ─▶ recorded cases (programs, calls, answers) ─▶ results ─▶ docs/operators.md

Recording exports programs with executorch, which is slow; it is done once and kept. Running is Pteron's part.
"""
