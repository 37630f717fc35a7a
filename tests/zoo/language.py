"""Networks of transformers for text, images, sequences of both, and time series: two layers, small widths."""

# mypy: ignore-errors
# (the package is untyped, and not installed where types are checked)

import torch

from zoo.model import Model, import_torchvision

SMALL = {
    "vocab_size": 99,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "pad_token_id": 0,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}  # grouped-query attention
HEADS = {**GROUPED, "head_dim": 16}
IMAGE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 64,
    "patch_size": 16,
}
SEQ2SEQ = {
    "vocab_size": 99,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def tokens(length=12):
    return lambda: torch.randint(3, 90, (2, length))


def padded(length=12):
    """A mask that hides the last tokens of the second row."""
    return lambda: (torch.arange(length)[None] < torch.tensor([[length], [length - 4]])).long()


def image(size=64):
    return lambda: torch.randn(2, 3, size, size)


def model(group, name, config, options, **inputs):
    """A class of transformers with a configuration, without a cache of keys and values."""

    def make():
        import_torchvision()  # transformers imports it
        import transformers

        made = getattr(transformers, name)(getattr(transformers, config)(**options))
        made.config.use_cache = False
        return made, (), {key: value() if callable(value) else value for key, value in inputs.items()}

    return Model(group, make)


def encoder(name, options, **inputs):
    given = {"input_ids": tokens(), "attention_mask": padded(), **inputs}
    return model("transformers, encoders", f"{name}Model", f"{name}Config", options, **given)


def decoder(name, options, config="", suffix="ForCausalLM"):
    config = config or f"{name}Config"
    return model(
        "transformers, decoders", name + suffix, config, options, input_ids=tokens(), use_cache=False
    )


def seq2seq(name, options, suffix="Model"):
    given = {"input_ids": tokens(), "decoder_input_ids": tokens(7), "use_cache": False}
    return model("transformers, encoder-decoders", name + suffix, f"{name}Config", options, **given)


def vision(name, options, size=64, suffix="Model"):
    return model("transformers, vision", name + suffix, f"{name}Config", options, pixel_values=image(size))


T5 = {"vocab_size": 99, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}
GPT2 = {"vocab_size": 99, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
DISTIL = {"vocab_size": 99, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 96}
MOE = {**HEADS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
STAGES = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "image_size": 32}

ENCODERS = {
    "bert": encoder("Bert", SMALL),
    "roberta": encoder("Roberta", {**SMALL, "max_position_embeddings": 64}),
    "albert": encoder("Albert", {**SMALL, "embedding_size": 32}),
    "distilbert": encoder("DistilBert", DISTIL),
    "electra": encoder("Electra", {**SMALL, "embedding_size": 32}),
    "deberta_v2": encoder("DebertaV2", {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "mpnet": encoder("MPNet", SMALL),
    "convbert": encoder("ConvBert", {**SMALL, "embedding_size": 64}),
    "squeezebert": encoder("SqueezeBert", {**SMALL, "embedding_size": 64}),
    "mobilebert": encoder(
        "MobileBert", {**SMALL, "embedding_size": 32, "true_hidden_size": 32, "intra_bottleneck_size": 32}
    ),
    "modernbert": encoder(
        "ModernBert",
        {
            **SMALL,
            "global_attn_every_n_layers": 2,
            "local_attention": 8,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "fnet": encoder("FNet", {**SMALL, "tpu_short_seq_length": 12}, attention_mask=lambda: None),
    "roformer": encoder("RoFormer", {**SMALL, "embedding_size": 64}),
    "esm": encoder(
        "Esm", {**SMALL, "mask_token_id": 4, "position_embedding_type": "rotary", "token_dropout": False}
    ),
    "funnel": encoder(
        "Funnel",
        {
            "vocab_size": 99,
            "block_sizes": [1, 1],
            "d_model": 64,
            "n_head": 4,
            "d_head": 16,
            "d_inner": 96,
            "num_decoder_layers": 1,
        },
    ),
    "nystromformer": encoder(
        "Nystromformer",
        {**SMALL, "num_landmarks": 4, "segment_means_seq_len": 12},
        attention_mask=lambda: None,
    ),
    "canine": encoder(
        "Canine",
        {**SMALL, "num_hash_buckets": 64, "num_hash_functions": 4, "local_transformer_stride": 8},
        input_ids=tokens(16),
        attention_mask=padded(16),
    ),
    "longformer": encoder("Longformer", {**SMALL, "attention_window": 4, "max_position_embeddings": 64}),
    "xlnet": encoder("XLNet", {"vocab_size": 99, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 96}),
    "t5_encoder": model("transformers, encoders", "T5EncoderModel", "T5Config", T5, input_ids=tokens()),
    "clip_text": model(
        "transformers, encoders", "CLIPTextModel", "CLIPTextConfig", SMALL, input_ids=tokens()
    ),
    "bert_classifier": model(
        "transformers, encoders",
        "BertForSequenceClassification",
        "BertConfig",
        SMALL,
        input_ids=tokens(),
        attention_mask=padded(),
    ),
}
DECODERS = {
    "gpt2": decoder("GPT2", GPT2, suffix="LMHeadModel"),
    "gpt_neo": decoder(
        "GPTNeo",
        {
            "vocab_size": 99,
            "hidden_size": 64,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "max_position_embeddings": 64,
        },
    ),
    "gpt_neox": decoder("GPTNeoX", SMALL),
    "gptj": decoder("GPTJ", {**GPT2, "rotary_dim": 8}),
    "gpt_bigcode": decoder("GPTBigCode", GPT2),
    "codegen": decoder("CodeGen", {**GPT2, "rotary_dim": 8}),
    "opt": decoder("OPT", {**SMALL, "ffn_dim": 96, "word_embed_proj_dim": 32, "max_position_embeddings": 64}),
    "bloom": decoder("Bloom", {"vocab_size": 99, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "mpt": decoder("Mpt", {"vocab_size": 99, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 32}),
    "falcon": decoder("Falcon", {**SMALL, "alibi": False}),
    "llama": decoder("Llama", GROUPED),
    "mistral": decoder("Mistral", {**GROUPED, "sliding_window": 4}),
    "mixtral": decoder("Mixtral", {**GROUPED, "num_local_experts": 4}),
    "gemma": decoder("Gemma", HEADS),
    "gemma2": decoder("Gemma2", {**HEADS, "sliding_window": 4}),
    "gemma3": decoder("Gemma3", HEADS, "Gemma3TextConfig"),
    "qwen2": decoder("Qwen2", GROUPED),
    "qwen3": decoder("Qwen3", HEADS),
    "qwen3_moe": decoder("Qwen3Moe", MOE),
    "phi": decoder("Phi", SMALL),
    "phi3": decoder("Phi3", GROUPED),
    "stablelm": decoder("StableLm", GROUPED),
    "starcoder2": decoder("Starcoder2", GROUPED),
    "cohere": decoder("Cohere", GROUPED),
    "olmo2": decoder("Olmo2", GROUPED),
    "olmoe": decoder("Olmoe", {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}),
    "granite": decoder("Granite", GROUPED),
    "glm4": decoder("Glm4", HEADS),
    "smollm3": decoder("SmolLM3", GROUPED),
    "nemotron": decoder("Nemotron", GROUPED),
    "deepseek_v2": decoder(
        "DeepseekV2",
        {
            **SMALL,
            "kv_lora_rank": 16,
            "q_lora_rank": None,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
        },
    ),
    "deepseek_v3": decoder(
        "DeepseekV3",
        {
            **SMALL,
            "kv_lora_rank": 16,
            "q_lora_rank": 24,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
            "n_group": 2,
            "topk_group": 1,
        },
    ),
    "gpt_oss": decoder(
        "GptOss", {**HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}
    ),
    "lfm2": decoder("Lfm2", {**GROUPED, "layer_types": ["conv", "full_attention"], "block_multiple_of": 8}),
    "mamba": decoder("Mamba", {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8}),
    "mamba2": decoder(
        "Mamba2",
        {
            "vocab_size": 99,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "state_size": 8,
            "num_heads": 4,
            "head_dim": 32,
            "n_groups": 1,
            "chunk_size": 8,
        },
    ),
    "rwkv": decoder(
        "Rwkv",
        {
            "vocab_size": 99,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "attention_hidden_size": 64,
            "context_length": 32,
        },
    ),
    "recurrent_gemma": decoder(
        "RecurrentGemma",
        {
            **HEADS,
            "num_key_value_heads": 1,
            "lru_width": 64,
            "attention_window_size": 8,
            "block_types": ["recurrent", "attention"],
        },
    ),
    "ctrl": decoder(
        "CTRL",
        {"vocab_size": 99, "n_embd": 64, "n_layer": 2, "n_head": 4, "dff": 96, "n_positions": 32},
        suffix="LMHeadModel",
    ),
    "xglm": decoder(
        "XGLM",
        {
            "vocab_size": 99,
            "d_model": 64,
            "num_layers": 2,
            "attention_heads": 4,
            "ffn_dim": 96,
            "max_position_embeddings": 32,
        },
    ),
    "bitnet": decoder("BitNet", GROUPED),
}
ENCODER_DECODERS = {
    "t5": seq2seq("T5", T5, "ForConditionalGeneration"),
    "mt5": seq2seq("MT5", {**T5, "feed_forward_proj": "gated-gelu"}),
    "bart": seq2seq("Bart", SEQ2SEQ),
    "marian": seq2seq("Marian", {**SEQ2SEQ, "decoder_start_token_id": 0}),
    "pegasus": seq2seq("Pegasus", SEQ2SEQ),
    "m2m_100": seq2seq("M2M100", SEQ2SEQ),
    "led": seq2seq(
        "LED",
        {
            **SEQ2SEQ,
            "attention_window": 4,
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
        },
    ),
    "prophetnet": seq2seq(
        "ProphetNet",
        {
            "vocab_size": 99,
            "hidden_size": 64,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "max_position_embeddings": 32,
        },
    ),
}
VISION = {
    "vit": vision("ViT", IMAGE),
    "deit": vision("DeiT", IMAGE),
    "beit": vision("Beit", {**IMAGE, "use_relative_position_bias": True}),
    "dinov2": vision("Dinov2", IMAGE),
    "clip_vision": vision("CLIPVision", IMAGE),
    "siglip_vision": vision("SiglipVision", IMAGE),
    "segformer": vision("Segformer", {"hidden_sizes": [16, 32, 40, 64], "depths": [1, 1, 1, 1]}),
    "swin": vision("Swin", STAGES, 32),
    "swinv2": vision("Swinv2", STAGES, 32),
    "convnextv2": vision("ConvNextV2", {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1]}),
    "poolformer": vision("PoolFormer", {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1]}),
    "pvt": vision(
        "Pvt",
        {
            "image_size": 64,
            "hidden_sizes": [16, 32, 40, 64],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 4],
        },
    ),
    "mobilevit": vision(
        "MobileViT",
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "neck_hidden_sizes": [8, 16, 24, 24, 32, 40, 48],
            "num_attention_heads": 2,
        },
    ),
    "glpn": vision(
        "GLPN",
        {"hidden_sizes": [16, 32, 40, 64], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16},
        suffix="ForDepthEstimation",
    ),
    "dpt": vision(
        "DPT",
        {
            **IMAGE,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [16, 16, 16, 16],
            "fusion_hidden_size": 16,
            "reassemble_factors": [4, 2, 1, 0.5],
        },
        suffix="ForDepthEstimation",
    ),
    "vit_msn": vision("ViTMSN", IMAGE),
    "yolos": vision(
        "Yolos", {**IMAGE, "image_size": [64, 64], "num_detection_tokens": 5}, suffix="ForObjectDetection"
    ),
    "sam_encoder": vision(
        "SamVision",
        {**IMAGE, "mlp_dim": 96, "window_size": 3, "global_attn_indexes": [1], "output_channels": 32},
    ),
    "swin2sr": vision(
        "Swin2SR",
        {
            "image_size": 16,
            "embed_dim": 24,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
            "upscale": 2,
        },
        16,
        suffix="ForImageSuperResolution",
    ),
    "videomae": model(
        "transformers, vision",
        "VideoMAEModel",
        "VideoMAEConfig",
        {**IMAGE, "image_size": 32, "num_frames": 4},
        pixel_values=lambda: torch.randn(2, 4, 3, 32, 32),
    ),
    "timesformer": model(
        "transformers, vision",
        "TimesformerModel",
        "TimesformerConfig",
        {**IMAGE, "image_size": 32, "num_frames": 4},
        pixel_values=lambda: torch.randn(2, 4, 3, 32, 32),
    ),
    "clip": model(
        "transformers, image and text",
        "CLIPModel",
        "CLIPConfig",
        {"text_config": {**SMALL, "eos_token_id": 2}, "vision_config": IMAGE},
        input_ids=tokens(),
        pixel_values=image(),
    ),
    "vilt": model(
        "transformers, image and text",
        "ViltModel",
        "ViltConfig",
        {**SMALL, **IMAGE, "max_image_length": -1},
        input_ids=tokens(),
        pixel_values=image(),
    ),
    "layoutlm": model(
        "transformers, image and text",
        "LayoutLMModel",
        "LayoutLMConfig",
        SMALL,
        input_ids=tokens(),
        bbox=lambda: torch.randint(0, 500, (2, 12, 4)).sort(-1).values,
    ),
}
SERIES = {
    "patchtst": model(
        "transformers, time series",
        "PatchTSTModel",
        "PatchTSTConfig",
        {
            "num_input_channels": 3,
            "context_length": 64,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 32,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "ffn_dim": 64,
        },
        past_values=lambda: torch.randn(2, 64, 3),
    ),
    "patchtsmixer": model(
        "transformers, time series",
        "PatchTSMixerModel",
        "PatchTSMixerConfig",
        {
            "num_input_channels": 3,
            "context_length": 64,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 16,
            "num_layers": 2,
        },
        past_values=lambda: torch.randn(2, 64, 3),
    ),
    "decision_transformer": model(
        "transformers, time series",
        "DecisionTransformerModel",
        "DecisionTransformerConfig",
        {**GPT2, "hidden_size": 64, "state_dim": 5, "act_dim": 3, "max_ep_len": 32},
        states=lambda: torch.randn(2, 6, 5),
        actions=lambda: torch.randn(2, 6, 3),
        rewards=lambda: torch.randn(2, 6, 1),
        returns_to_go=lambda: torch.randn(2, 6, 1),
        timesteps=lambda: torch.arange(6).expand(2, 6).contiguous(),
        attention_mask=lambda: torch.ones(2, 6),
    ),
}

MODELS = {**ENCODERS, **DECODERS, **ENCODER_DECODERS, **VISION, **SERIES}
