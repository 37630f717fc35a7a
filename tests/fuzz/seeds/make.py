"""Write the seeds that need libraries to be made: small tokenizers and checkpoints, sound and short.

PYTHONPATH=src:tests .venv/bin/python -m fuzz.seeds.make
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import safetensors.numpy
import sentencepiece
import tokenizers

SEEDS = Path(__file__).parent
TEXT = ["the house and the dog", "a dog in the house", "once upon a time the dog"] * 4
WORDS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(97, 123)), "▁", *"adehotu"]
WORDS += ["▁t", "he", "▁the"]
DIM, HEADS, HIDDEN, LAYERS = 8, 2, 8, 1
# GGUF's name of a weight -> Hugging Face's, and its shape.
WEIGHTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "attn_q": ("self_attn.q_proj", (DIM, DIM)),
    "attn_k": ("self_attn.k_proj", (DIM, DIM)),
    "attn_v": ("self_attn.v_proj", (DIM, DIM)),
    "attn_output": ("self_attn.o_proj", (DIM, DIM)),
    "attn_norm": ("input_layernorm", (DIM,)),
    "ffn_norm": ("post_attention_layernorm", (DIM,)),
    "ffn_gate": ("mlp.gate_proj", (HIDDEN, DIM)),
    "ffn_down": ("mlp.down_proj", (DIM, HIDDEN)),
    "ffn_up": ("mlp.up_proj", (HIDDEN, DIM)),
}


def byte_level() -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", 0)]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=60, special_tokens=["<|start|>", "<|end|>"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens(["<think>"])
    tokenizer.save(str(SEEDS / "byte_level.tokenizer.json"), pretty=False)


def pieces() -> None:
    ids = {piece: id for id, piece in enumerate(WORDS)}
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    model = tokenizers.models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.enable_padding(pad_id=0, pad_token="<unk>")
    tokenizer.enable_truncation(64)
    tokenizer.save(str(SEEDS / "pieces.tokenizer.json"), pretty=False)


def sentence_piece(kind: str) -> None:
    with (SEEDS / f"{kind}.tokenizer.model").open("wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT * 20),
            model_writer=model,  # a prefix of files would stand in the model, with its folder
            vocab_size=300,
            model_type=kind,
            byte_fallback=True,
            normalization_rule_name="identity",  # any other brings a table of 240 kB
            hard_vocab_limit=False,
            control_symbols=["<turn>"],
            minloglevel=2,
        )


def checkpoint() -> None:
    config = {
        "model_type": "llama",
        "hidden_size": DIM,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "intermediate_size": HIDDEN,
        "vocab_size": len(WORDS),
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 32,
        "tie_word_embeddings": False,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    }
    (SEEDS / "config.json").write_text(json.dumps(config))
    tensors = {f"model.layers.0.{name}.weight": zeros(*shape) for name, shape in WEIGHTS.values()}
    tensors |= {"model.embed_tokens.weight": zeros(len(WORDS), DIM), "model.norm.weight": zeros(DIM)}
    tensors["lm_head.weight"] = zeros(len(WORDS), DIM)
    safetensors.numpy.save_file(tensors, str(SEEDS / "model.safetensors"))


def gguf_file(kind: str) -> None:
    writer = gguf.GGUFWriter(str(SEEDS / f"{kind}.gguf"), "llama")
    writer.add_context_length(32)
    writer.add_embedding_length(DIM)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(DIM // HEADS)
    writer.add_tokenizer_model(kind)
    writer.add_token_list(WORDS)
    writer.add_token_types([2, 3, 3] + [6] * 26 + [1] * (len(WORDS) - 29))
    if kind == "gpt2":
        writer.add_tokenizer_pre("smollm")
        writer.add_token_merges(["▁ t", "h e", "▁t he"])
    else:
        writer.add_token_scores([-float(place) for place in range(len(WORDS))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ bos_token }}{{ messages[0].content }}")
    for name, (_, shape) in WEIGHTS.items():
        writer.add_tensor(f"blk.0.{name}.weight", zeros(*shape))
    writer.add_tensor("token_embd.weight", zeros(len(WORDS), DIM))
    writer.add_tensor("output_norm.weight", zeros(DIM))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def zeros(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float16]]:
    return np.zeros(shape, np.float16)


if __name__ == "__main__":
    byte_level()
    pieces()
    sentence_piece("bpe")
    sentence_piece("unigram")
    checkpoint()
    gguf_file("llama")
    gguf_file("gpt2")
