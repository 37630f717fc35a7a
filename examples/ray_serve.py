"""Serves a language model by several replicas with Ray Serve, asks it from many threads, and ends.

    python examples/ray_serve.py [MODEL] [--replicas N] [--address HOST:PORT]

As `pteron serve MODEL --ray --replicas N` does, in a program of one's own: needs the extra `ray` and
`pip install openai`. With an address the replicas are on a cluster's machines, else all on this one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import openai
import ray
from ray import serve

from pteron.serving.cluster import Options, build

CLIENTS = 8
TOKENS = 40


def ask(client: openai.OpenAI, name: str, index: int) -> int:
    """One conversation of two turns; its second turn finds the first in the cache of the replica that had it.
    Returns how many tokens of it did not have to be read again."""
    messages = [{"role": "user", "content": f"Tell me story number {index}."}]
    cached = 0
    for _ in range(2):
        answer = client.chat.completions.create(model=name, messages=messages, max_tokens=TOKENS)
        cached = answer.usage.prompt_tokens_details.cached_tokens
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        messages.append({"role": "user", "content": "Go on."})
    return cached


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Serve a language model by several replicas.")
    parser.add_argument("model", nargs="?", default="stories15m")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--gpus", type=float, default=0, help="set aside for each replica")
    parser.add_argument("--address", help="of a cluster")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args(given)

    ray.init(address=arguments.address, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": arguments.port})
        options = Options(
            arguments.model, "model", replicas=arguments.replicas, gpus=arguments.gpus, is_quiet=True
        )
        serve.run(build(options), name="pteron")
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{arguments.port}/v1", api_key="none")
        begun = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as threads:
            cached = list(threads.map(lambda index: ask(client, "model", index), range(CLIENTS)))
        seconds = time.perf_counter() - begun
        rate = 2 * CLIENTS * TOKENS / seconds
        print(f"{CLIENTS} conversations by {arguments.replicas} replicas: about {rate:.0f} tokens/s")
        print(f"tokens of second turns that were still in a cache: {cached}")
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
