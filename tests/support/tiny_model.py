#!/usr/bin/env python3
"""Writes tiny random models and LoRA adapters in GGUF, for tests that compare with libllama.

    tiny_model.py OUT [NAME ...]     writes OUT/NAME.gguf for the named recipes (default: all of them)
    tiny_model.py --list             prints the recipes, one a line: NAME<tab>what is special

The same name always gives the same bytes. Weights are random, but scaled so that attention is far from uniform and
logits are spread; the vocabulary is real (byte-level BPE, or SentencePiece with byte tokens for gemma3), so any text
has tokens. Finished files are kept: a second call returns at once. Needs the packages of requirements-test.txt.
"""
import argparse
import dataclasses
import os
import pathlib
import sys
import zlib

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType as Type

F32, F16, BF16, Q8_0, Q4_0, Q4_K = Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_K
MERGED = ["th", "he", "in", "er", "an", "the", "ing", "and", "Ġt", "Ġa", "Ġthe", "Ġand", "on", "re", "ĠĠ", "ĠĠĠĠ"]


@dataclasses.dataclass(frozen=True)
class Recipe:
    what: str
    arch: str = "llama"
    layers: int = 2
    embedding: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    feed_forward: int = 96
    context: int = 4096
    type: Type = F32
    tied: bool = False
    theta: float = 10000.0
    window: int = 0
    local_theta: float = 10000.0
    rotated: int = 0  # partial rotary: dimensions that rotate; 0 = all
    scaling: dict = dataclasses.field(default_factory=dict)
    factors: bool = False
    biases: bool = False


@dataclasses.dataclass(frozen=True)
class AdapterRecipe:
    what: str
    base: str
    rank: int
    alpha: float
    targets: tuple
    type: Type = F32


WIDE = dict(embedding=256, heads=4, kv_heads=2, head_dim=64, feed_forward=512)
YARN = {"type": "yarn", "factor": 4.0, "original_context_length": 256}
GEMMA = dict(arch="gemma3", layers=6, head_dim=32, context=2048, window=24, theta=1000000.0, tied=True)
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
RECIPES = {
    "llama-f32": Recipe("plain, grouped-query"),
    "llama-f16": Recipe("F16 weights", type=F16),
    "llama-bf16": Recipe("BF16 weights", type=BF16),
    "llama-q8_0": Recipe("Q8_0 weights", type=Q8_0),
    "llama-q4_0": Recipe("Q4_0 weights (repacked by ggml)", type=Q4_0),
    "llama-q4_k": Recipe("Q4_K weights, rows of 256", type=Q4_K, **WIDE),
    "llama-mha-tied": Recipe("no grouping, tied output, head_dim 32", heads=2, kv_heads=2, head_dim=32, tied=True),
    "llama-mqa-wide-head": Recipe("one KV head, head_dim 64 x 4 wider than the embedding", kv_heads=1, head_dim=64),
    "llama-factors": Recipe("Llama-3 rope factors", factors=True, theta=500000.0),
    "llama-linear": Recipe("linear rope scaling", scaling={"type": "linear", "factor": 4.0}),
    "llama-yarn": Recipe("YaRN scaling", scaling=YARN),
    "llama-partial": Recipe("partial rotary, 8 of 16 (libllama refuses it for llama)", rotated=8),
    "qwen2-f32": Recipe("biases on q, k, v", arch="qwen2", biases=True, theta=1000000.0),
    "qwen2-q8_0": Recipe("biases, Q8_0, 4 layers", arch="qwen2", biases=True, layers=4, type=Q8_0),
    "qwen2-yarn": Recipe("biases and YaRN", arch="qwen2", biases=True, scaling=YARN),
    "qwen3-f32": Recipe("q/k norms, head_dim not embedding / heads", arch="qwen3", head_dim=32, theta=1000000.0),
    "qwen3-f16": Recipe("q/k norms, F16, tied", arch="qwen3", head_dim=32, type=F16, tied=True),
    "gemma3-f32": Recipe("windows of 24 in 5 of 6 layers, two rope bases, post-norms", **GEMMA),
    "gemma3-q8_0": Recipe("the same in Q8_0", type=Q8_0, **GEMMA),
    "gemma3-linear": Recipe("the same with linear scaling of the global layers",
                            scaling={"type": "linear", "factor": 8.0}, **GEMMA),
    "lora-llama-attention": AdapterRecipe("rank 4 on attention", "llama-f32", 4, 8.0, ATTENTION),
    "lora-llama-all": AdapterRecipe("rank 8 on all matrices, F16", "llama-f32", 8, 16.0,
                                    ATTENTION + ("ffn_gate", "ffn_up", "ffn_down"), F16),
    "lora-llama-q8_0": AdapterRecipe("rank 4 on attention of the Q8_0 model", "llama-q8_0", 4, 4.0, ATTENTION),
    "lora-qwen2": AdapterRecipe("rank 4 on q and v, no alpha", "qwen2-f32", 4, 0.0, ("attn_q", "attn_v")),
    "lora-gemma3": AdapterRecipe("rank 4 on q, v and down", "gemma3-f32", 4, 8.0, ("attn_q", "attn_v", "ffn_down")),
}


def byte_letters():
    """The letters by which byte-level BPE writes the 256 bytes (those of GPT-2)."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    letters, extra = {}, 0
    for byte in range(256):
        if byte in plain:
            letters[byte] = chr(byte)
        else:
            letters[byte], extra = chr(256 + extra), extra + 1
    return letters


def byte_level_vocabulary(writer):
    letters = byte_letters()
    tokens = [letters[b] for b in range(256)] + MERGED
    merges = []
    for token in MERGED:
        left = next(i for i in range(len(token) - 1, 0, -1) if token[:i] in tokens and token[i:] in tokens)
        merges.append(f"{token[:left]} {token[left:]}")
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    types = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * len(special)
    tokens += special
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    return len(tokens)


def sentence_piece_vocabulary(writer):
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    types = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.UNKNOWN] + [gguf.TokenType.BYTE] * 256
    pieces = ["<start_of_turn>", "<end_of_turn>"] + ["▁"] + [chr(c) for c in range(33, 127)]
    pieces += ["▁t", "▁a", "th", "he", "the", "▁the", "an", "in", "ing", "er", "on", "\n\n"]
    types += [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (len(pieces) - 2)
    tokens += pieces
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_token_types(types)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    return len(tokens)


CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
GEMMA_TURNS = ("{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
               "{{ m.content }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}")


def random_q4_k(random, rows, columns):
    """Valid Q4_K blocks that decode to numbers around 0 of spread 1/sqrt(columns); the package cannot encode Q4_K."""
    blocks = random.integers(0, 256, size=(rows, columns // 256, 144), dtype=np.uint8)
    scale = np.full((rows, columns // 256), 1 / (np.sqrt(columns) * 32 * 4.6), dtype=np.float32)
    blocks[:, :, 0:2] = scale.astype(np.float16)[..., None].view(np.uint8)
    blocks[:, :, 2:4] = (7.5 * scale).astype(np.float16)[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


class TensorSink:
    def __init__(self, writer, name, kind):
        self.writer, self.kind = writer, kind
        self.random = np.random.default_rng(zlib.crc32(name.encode()))

    def add(self, name, values, kind):
        if kind == F32:
            self.writer.add_tensor(name, values.astype(np.float32))
        elif kind == F16:
            self.writer.add_tensor(name, values.astype(np.float16))
        else:
            self.writer.add_tensor(name, gguf.quants.quantize(values.astype(np.float32), kind), raw_dtype=kind)

    def matrix(self, name, rows, columns, gain=1.0):
        if self.kind == Q4_K:
            self.writer.add_tensor(name, random_q4_k(self.random, rows, columns), raw_dtype=Q4_K)
        else:
            self.add(name, self.random.normal(0, gain / np.sqrt(columns), (rows, columns)), self.kind)

    def norm(self, name, size):
        self.add(name, 1 + 0.2 * self.random.normal(size=size), F32)

    def bias(self, name, size):
        self.add(name, 0.3 * self.random.normal(size=size), F32)


def write_metadata(writer, name, r):
    writer.add_name(name)
    writer.add_block_count(r.layers)
    writer.add_context_length(r.context)
    writer.add_embedding_length(r.embedding)
    writer.add_feed_forward_length(r.feed_forward)
    writer.add_head_count(r.heads)
    writer.add_head_count_kv(r.kv_heads)
    writer.add_key_length(r.head_dim)
    writer.add_value_length(r.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(r.theta)
    writer.add_rope_dimension_count(r.rotated or r.head_dim)
    for key, value in r.scaling.items():
        full = f"{r.arch}.rope.scaling.{key}"
        {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)](full, value)
    if r.window:
        writer.add_sliding_window(r.window)
        writer.add_float32(f"{r.arch}.rope.freq_base_swa", r.local_theta)


def write_layer(sink, r, block):
    q, kv = r.heads * r.head_dim, r.kv_heads * r.head_dim
    sink.norm(f"{block}.attn_norm.weight", r.embedding)
    sink.matrix(f"{block}.attn_q.weight", q, r.embedding, 1.6)
    sink.matrix(f"{block}.attn_k.weight", kv, r.embedding, 1.6)
    sink.matrix(f"{block}.attn_v.weight", kv, r.embedding)
    sink.matrix(f"{block}.attn_output.weight", r.embedding, q)
    if r.biases:
        for part, size in (("q", q), ("k", kv), ("v", kv)):
            sink.bias(f"{block}.attn_{part}.bias", size)
    if r.arch in ("qwen3", "gemma3"):
        sink.norm(f"{block}.attn_q_norm.weight", r.head_dim)
        sink.norm(f"{block}.attn_k_norm.weight", r.head_dim)
    if r.arch == "gemma3":
        sink.norm(f"{block}.post_attention_norm.weight", r.embedding)
        sink.norm(f"{block}.post_ffw_norm.weight", r.embedding)
    sink.norm(f"{block}.ffn_norm.weight", r.embedding)
    sink.matrix(f"{block}.ffn_gate.weight", r.feed_forward, r.embedding)
    sink.matrix(f"{block}.ffn_up.weight", r.feed_forward, r.embedding)
    sink.matrix(f"{block}.ffn_down.weight", r.embedding, r.feed_forward)


def write_model(path, name, r):
    writer = gguf.GGUFWriter(path, r.arch)
    write_metadata(writer, name, r)
    gemma = r.arch == "gemma3"
    vocabulary = sentence_piece_vocabulary(writer) if gemma else byte_level_vocabulary(writer)
    writer.add_chat_template(GEMMA_TURNS if gemma else CHATML)
    sink = TensorSink(writer, name, r.type)
    sink.matrix("token_embd.weight", vocabulary, r.embedding, 2.0)
    sink.norm("output_norm.weight", r.embedding)
    if not r.tied:
        sink.matrix("output.weight", vocabulary, r.embedding, 2.0)
    if r.factors:
        pairs = r.head_dim // 2
        writer.add_tensor("rope_freqs.weight", np.geomspace(1, 8, pairs, dtype=np.float32))
    for layer in range(r.layers):
        write_layer(sink, r, f"blk.{layer}")
    finish(writer)


def write_adapter(path, name, a):
    base = RECIPES[a.base]
    writer = gguf.GGUFWriter(path, base.arch)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", a.alpha)
    sink = TensorSink(writer, name, a.type)
    q, kv = base.heads * base.head_dim, base.kv_heads * base.head_dim
    e, f = base.embedding, base.feed_forward
    shapes = {"attn_q": (q, e), "attn_k": (kv, e), "attn_v": (kv, e), "attn_output": (e, q),
              "ffn_gate": (f, e), "ffn_up": (f, e), "ffn_down": (e, f)}
    for layer in range(base.layers):
        for target in a.targets:
            rows, columns = shapes[target]
            sink.matrix(f"blk.{layer}.{target}.weight.lora_a", a.rank, columns)
            sink.matrix(f"blk.{layer}.{target}.weight.lora_b", rows, a.rank, 0.5)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(folder, name):
    target = folder / f"{name}.gguf"
    if target.exists() and target.stat().st_mtime >= pathlib.Path(__file__).stat().st_mtime:
        return
    fresh = folder / f".{name}.{os.getpid()}"
    recipe = RECIPES[name]
    (write_adapter if isinstance(recipe, AdapterRecipe) else write_model)(fresh, name, recipe)
    os.replace(fresh, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the recipes")
    parser.add_argument("out", nargs="?", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    if arguments.list:
        for name, recipe in RECIPES.items():
            print(f"{name}\t{recipe.what}")
        return
    if arguments.out is None:
        parser.error("name the folder to write to, or --list")
    unknown = [name for name in arguments.names if name not in RECIPES]
    if unknown:
        sys.exit(f"tiny_model.py: unknown model '{unknown[0]}'; --list shows those there are")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or RECIPES:
        write(arguments.out, name)


if __name__ == "__main__":
    main()
