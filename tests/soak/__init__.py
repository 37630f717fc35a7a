"""Long runs: rounds of whatever users do, in one process, every answer compared with the first one given.

    scripts/soak ROUNDS [--seed N]

A round loads, calls, generates, gives up half way, hands in what is wrong, is interrupted, or closes. What a
question's answer is was noted at the start, by programs that had done nothing else. Between stretches of
rounds everything is closed, and what is left is measured: memory must not grow.
"""
