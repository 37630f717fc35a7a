"""Small decoders that give hidden states, made of one that gives logits by changing what its graph gives.

That one is family `qwen3` of families.py, exported in float32 with the logits of all tokens: what its states
are, `states` says in float64, without a cache and without ExecuTorch.
"""

# mypy: ignore-errors
# (torch and executorch are untyped to mypy here)

import copy
from pathlib import Path

import families
import numpy as np
import numpy.typing as npt

MODEL = Path(__file__).parent / "fixtures" / "decoders" / "tiny_qwen3_full.pte"
CHUNK, CONTEXT = 7, 61
KINDS = ("all", "last", "second output", "second method")


def write_states(kind: str, folder: Path) -> Path:
    """A folder with a program that gives the states of all tokens or of the last, alone, or those of all
    beside logits, as a second output or by a second method."""
    from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary

    folder.mkdir(parents=True, exist_ok=True)
    file = deserialize_pte_binary(MODEL.read_bytes())
    program = file.program
    [blob] = program.backend_delegate_data
    if kind == "second method":
        plan = copy.deepcopy(program.execution_plan[0])
        plan.name = "embed"
        plan.delegates[0].processed.index = 1
        program.execution_plan.append(plan)
        program.backend_delegate_data.append(type(blob)(_graph(bytes(blob.data), plan, "all")))
    else:
        blob.data = _graph(bytes(blob.data), program.execution_plan[0], kind)
    data = serialize_pte_binary(file, extract_delegate_segments=True)
    (folder / "model.pte").write_bytes(bytes(data))
    families.write_tokenizer(folder)
    return folder


def _graph(blob: bytes, plan, kind: str) -> bytes:
    """A delegate that gives something else, and the same in the plan that calls it."""
    from executorch.backends.vulkan.serialization import vulkan_graph_serialize as delegates

    graph = delegates.flatbuffer_to_vk_graph(delegates.extract_vk_flatbuffer(blob))
    last = max(index for index, call in enumerate(graph.chain) if call.name == "et_vk.rms_norm.default")
    states = graph.chain[last].args[-1]
    graph.values[states].value.mem_obj_id = 1 + max(
        getattr(value.value, "mem_obj_id", 0) for value in graph.values
    )
    (output,) = plan.outputs
    given = plan.values[output]
    if kind == "second output":
        graph.output_ids.append(states)
        given = copy.deepcopy(given)
        plan.values.append(given)
        plan.outputs.append(len(plan.values) - 1)
        plan.chains[0].instructions[0].instr_args.args.append(len(plan.values) - 1)
        given.val.allocation_info.memory_offset_low = plan.non_const_buffer_sizes[1]
        plan.non_const_buffer_sizes[1] += 4 * CHUNK * families.DIM
    else:
        graph.output_ids = [states]
        graph.chain = graph.chain[: last + 1]
    given.val.sizes = [1, CHUNK, families.DIM]
    if kind == "last":
        _select_last(graph, states)
        given.val.sizes, given.val.dim_order = [1, families.DIM], [0, 1]
        given.val.shape_dynamism = type(given.val.shape_dynamism)(0)
    weights, graph.constants = [(found.named_key, found.length) for found in graph.constants], []
    return delegates.serialize_vulkan_graph(graph, weights, [])


def _select_last(graph, states: int) -> None:
    from executorch.backends.vulkan.serialization import vulkan_graph_schema as schema

    chosen = copy.deepcopy(graph.values[states])
    chosen.value.dims = [1, families.DIM]
    chosen.value.mem_obj_id += 1
    numbers = [schema.VkValue(schema.Int(number)) for number in (1, -1)]
    first = len(graph.values)
    graph.values += [*numbers, chosen]
    arguments = [states, first, first + 1, first + 2]
    graph.chain.append(schema.OperatorCall(graph.chain[-1].node_id + 1, "aten.select_copy.int", arguments))
    graph.output_ids = [first + 2]


def states(ids: list[int]) -> npt.NDArray[np.float64]:
    """The hidden states of a text's tokens, [S, D]."""
    import tempfile

    import torch
    from executorch_llama import logits_of, parameters_of, weights_of

    from pteron.llm.export import read_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = read_checkpoint(families.write_folder("qwen3", Path(folder)))
        weights = {name: tensor.double() for name, tensor in weights_of(checkpoint).items()}
    weights["output.weight"] = torch.eye(families.DIM, dtype=torch.float64)  # what enters the last matrix
    found: npt.NDArray[np.float64] = logits_of(parameters_of(checkpoint), weights, ids).numpy()
    return found
