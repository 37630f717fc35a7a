"""One decode stack for all generations: requests in, tokens out.

`Engine` runs many requests on a thread of its own (`LLM.stream`, `LLM.generate_batch`, `pteron serve`);
`LLM.generate`, `LLM.chat` and `generate_step` run one request on the calling thread. Both use the same
steppers and pipeline. The path of a token from `LLM.generate` to the GPU:

    llm/llm.py              LLM.generate: options -> Request -> RunningRequest
    llm/engine/pipeline.py  decode_alone: submits ahead, reads the oldest submission (an engine: scheduler.py)
    llm/engine/steppers.py  SingleStepper: which chunk or steps come next
    llm/submission.py       Submitter: commands of the model and the sampler, and the readback
    llm/model.py            LanguageModel.launch_steps: the next steps of one sequence
    runtime/delegate.py     Delegate.repeat: the states of that sequence
    runtime/multi_step.py   the plan's commands, step after step, in one submission
    gpu/                    submit
"""

from pteron.llm.engine.answer import Answer, Stream
from pteron.llm.engine.engine import Engine
from pteron.llm.engine.load import Load
from pteron.llm.engine.queue import Busy
from pteron.llm.request import Request

__all__ = ["Answer", "Busy", "Engine", "Load", "Request", "Stream"]
