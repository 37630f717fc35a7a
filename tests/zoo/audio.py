"""Audio networks of transformers."""

# mypy: ignore-errors
# (the package is untyped, and not installed where types are checked)

import torch

from zoo.language import SMALL, model, tokens
from zoo.model import Model, import_torchvision

WAVE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "conv_dim": (32, 32),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
WHISPER = {
    "vocab_size": 99,
    "d_model": 64,
    "num_mel_bins": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_source_positions": 20,
    "max_target_positions": 20,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


def wave(name, **options):
    given = {"input_values": lambda: torch.randn(2, 800)}
    return model("transformers, audio", f"{name}Model", f"{name}Config", {**WAVE, **options}, **given)


def whisper_encoder():
    import_torchvision()  # transformers imports it
    import transformers

    found = transformers.WhisperModel(transformers.WhisperConfig(**WHISPER)).get_encoder()
    return found, (torch.randn(2, 16, 40),), {}


MODELS = {
    "wav2vec2": wave("Wav2Vec2"),
    "wav2vec2_layer_norm": wave("Wav2Vec2", feat_extract_norm="layer", do_stable_layer_norm=True),
    "hubert": wave("Hubert"),
    "wavlm": wave("WavLM"),
    "unispeech": wave("UniSpeech"),
    "data2vec_audio": wave("Data2VecAudio"),
    "sew": wave("SEW", squeeze_factor=2),
    "wav2vec2_conformer": wave("Wav2Vec2Conformer", position_embeddings_type="rotary"),
    "whisper_encoder": Model("transformers, audio", whisper_encoder),
    "whisper": model(
        "transformers, audio",
        "WhisperModel",
        "WhisperConfig",
        WHISPER,
        input_features=lambda: torch.randn(2, 16, 40),
        decoder_input_ids=tokens(7),
        use_cache=False,
    ),
    "audio_spectrogram_transformer": model(
        "transformers, audio",
        "ASTModel",
        "ASTConfig",
        {
            **{k: v for k, v in SMALL.items() if k not in ("vocab_size", "pad_token_id")},
            "max_length": 64,
            "num_mel_bins": 32,
        },
        input_values=lambda: torch.randn(2, 64, 32),
    ),
    "moonshine": model(
        "transformers, audio",
        "MoonshineModel",
        "MoonshineConfig",
        {
            **{k: v for k, v in SMALL.items() if "num" not in k},
            "encoder_num_hidden_layers": 1,
            "decoder_num_hidden_layers": 1,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
        },
        input_values=lambda: torch.randn(2, 2000),
        decoder_input_ids=tokens(7),
        use_cache=False,
    ),
    "encodec": model(
        "transformers, audio",
        "EncodecModel",
        "EncodecConfig",
        {
            "hidden_size": 16,
            "num_filters": 4,
            "upsampling_ratios": [4, 2],
            "codebook_size": 32,
            "num_lstm_layers": 1,
            "target_bandwidths": [1.5],
            "sampling_rate": 800,
        },
        input_values=lambda: torch.randn(2, 1, 400),
    ),
    "univnet": model(
        "transformers, audio",
        "UnivNetModel",
        "UnivNetConfig",
        {
            "model_in_channels": 8,
            "model_hidden_channels": 4,
            "num_mel_bins": 12,
            "resblock_kernel_sizes": [3],
            "resblock_stride_sizes": [4],
            "resblock_dilation_sizes": [[1, 3]],
            "kernel_predictor_hidden_channels": 8,
        },
        input_features=lambda: torch.randn(2, 10, 12),
        noise_sequence=lambda: torch.randn(2, 10, 8),
    ),
    "mel_vocoder": model(
        "transformers, audio",
        "SpeechT5HifiGan",
        "SpeechT5HifiGanConfig",
        {
            "model_in_dim": 16,
            "upsample_initial_channel": 16,
            "upsample_rates": [4, 2],
            "upsample_kernel_sizes": [8, 4],
            "resblock_kernel_sizes": [3],
            "resblock_dilation_sizes": [[1, 3]],
        },
        spectrogram=lambda: torch.randn(2, 12, 16),
    ),
}
