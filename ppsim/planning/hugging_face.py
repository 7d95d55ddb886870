"""Language models by their Hugging Face config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppsim.base.source import name_of, read_text
from ppsim.base.text import quote
from ppsim.errors import InputError

KEYS = {
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "seq": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "ffn": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
    "kv_heads": ("num_key_value_heads", "multi_query_group_num", "num_kv_heads"),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "top_k": ("num_experts_per_tok", "experts_per_token"),
    "expert_ffn": ("moe_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "moe_every": ("interleave_moe_layer_step", "decoder_sparse_step"),
    "q_lora": ("q_lora_rank",),
    "kv_lora": ("kv_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
    "v_dim": ("v_head_dim",),
    "mtp": ("num_nextn_predict_layers",),
}
LARGEST_CONFIG = 4 << 20
CONFIG = "the config.json of a language model"
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation")
PLAIN_MLPS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "gelu_fast")
# Kinds whose files leave out what is usual for them: MLPs without a gate, a tied output, biases, windows.
PLAIN = ("bloom", "falcon", "gpt_bigcode", "gpt_neox", "mpt", "opt", "phi", "starcoder2")
TIED = ("bloom", "falcon", "mpt", "opt")
BIASED = ("bloom", "gpt_neox", "opt", "phi")
WINDOWED = {"mistral": 1, "mixtral": 1, "phi3": 1, "starcoder2": 1, "gemma2": 2}  # every how many layers


def read_config(path: str) -> dict[str, Any]:
    """Read a config.json as the fields of a :class:`ppsim.planning.model.Model`.

    Raises:
        InputError: it is no config.json, or of a model that is not known here.
    """
    data = _read_object(path)
    _refuse_other_layers(data, path)
    given = _sizes(data, path)
    latent = "kv_lora" in given
    head_dim = _first(data, ("qk_nope_head_dim",) if latent else ("head_dim",), path)
    if not latent:
        given.pop("rope_dim", None)
        given.pop("v_dim", None)
    elif not head_dim:
        raise InputError(f"'{path}' has kv_lora_rank and no qk_nope_head_dim", CONFIG)
    shared = _first(data, ("shared_expert_intermediate_size",), path)
    if shared is None and (count := _first(data, ("n_shared_experts",), path)):
        shared = count * given.get("expert_ffn", given.get("ffn", 0))
    gpt, kind = "n_embd" in data, str(data.get("model_type") or "")
    if kind.startswith("llama4") and (dense := _first(data, ("intermediate_size_mlp",), path)):
        shared = given["expert_ffn"] = given["ffn"]
        given["ffn"] = dense
    gemma = kind.startswith("gemma")
    usual = "gelu" if gpt or kind in PLAIN else "silu"
    activation = next((data[key] for key in ACTIVATIONS if data.get(key)), usual)
    return {
        **given,
        **_window(data, kind),
        "head_dim": head_dim or 0,
        "shared_ffn": shared or 0,
        "gated": gemma or activation not in PLAIN_MLPS,
        "tied": bool(data.get("tie_word_embeddings", gpt or gemma or kind in TIED)),
        "learned_positions": gpt or kind == "opt",
        "biases": gpt or kind in BIASED,
        "clamped": kind == "gpt_oss",
        "name": str(data.get("_name_or_path") or Path(path).parent.name or Path(path).stem),
        "source": name_of(path),
    }


def _read_object(path: str) -> Mapping[str, Any]:
    text = read_text(path, "a Hugging Face config.json", largest=LARGEST_CONFIG)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not JSON: {error}", "a Hugging Face config.json") from error
    if isinstance(data, dict) and isinstance(data.get("text_config"), dict):
        data = data["text_config"]
    if not isinstance(data, dict):
        raise InputError(f"'{path}' holds no object", "a Hugging Face config.json")
    return data


def _sizes(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the numbers that the file has, by the model's fields."""
    numbers = {name: _first(data, keys, path) for name, keys in KEYS.items()}
    given: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    for name in ("hidden", "heads", "layers", "seq", "vocab"):
        if name not in given:
            raise InputError(f"'{path}' has no {KEYS[name][0]}", CONFIG)
    if data.get("multi_query") is True and not data.get("new_decoder_architecture"):
        given["kv_heads"] = 1
    if dense := data.get("mlp_only_layers"):
        if dense != list(range(len(dense))):
            raise InputError(f"'{path}': mlp_only_layers are not the first layers: {quote(dense)}", CONFIG)
        given["dense_layers"] = len(dense)
    return given


def _refuse_other_layers(data: Mapping[str, Any], path: str) -> None:
    """Refuse encoders, and models whose layers are not all attention, which the cost model does not know."""
    names = data.get("architectures")
    masked = isinstance(names, list) and any("MaskedLM" in str(name) for name in names)
    if masked or data.get("is_encoder_decoder") is True:
        raise InputError(f"'{path}' is of a model with an encoder", "a decoder: encoders are not modelled")
    kinds = data.get("layer_types")
    others = {str(kind) for kind in kinds if "attention" not in str(kind)} if isinstance(kinds, list) else set()
    others |= {str(kind) for kind in kinds if "linear" in str(kind)} if isinstance(kinds, list) else set()
    others |= {key for key in data if "mamba" in key or "hybrid" in key or key.startswith("ssm_")}
    if "mamba" in str(data.get("model_type")):
        others.add(str(data["model_type"]))
    if others:
        raise InputError(
            f"'{path}' has layers that are no attention ({', '.join(sorted(others)[:3])})",
            "a transformer: hybrid models are not modelled",
        )


def _window(data: Mapping[str, Any], kind: str) -> dict[str, int]:
    """Return the sliding window where all layers or every second one has it; otherwise none, which costs more."""
    kinds, width = data.get("layer_types"), data.get("sliding_window")
    if not isinstance(width, int) or isinstance(width, bool) or data.get("use_sliding_window") is False:
        return {}
    if isinstance(kinds, list) and kinds:
        every = len(kinds) / max(sum("sliding" in str(kind) for kind in kinds), 1)
    else:
        every = WINDOWED.get(kind, 0)
    return {"window": width, "window_every": int(every)} if every in (1, 2) else {}


def _first(data: Mapping[str, Any], keys: tuple[str, ...], path: str) -> int | None:
    """Return the first of these keys that has a number, or None."""
    for key in keys:
        value = data.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if value is not None:
            raise InputError(f"'{path}': {key} must be a whole number, got {quote(value)}", CONFIG)
    return None
