"""Soak test: rounds of mixed use in one process; every answer is compared with the first one.

    scripts/soak ROUNDS [--seed N]

A round loads, calls, generates (in streams that stay open and in threads), saves a cache, stops half way,
passes wrong inputs, fails, is interrupted, or closes. The expected answers are recorded at the start, by
freshly loaded programs. From time to time everything is closed and the remaining memory is measured: it must
not grow.
"""
