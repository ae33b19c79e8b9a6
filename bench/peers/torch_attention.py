#!/usr/bin/env python3
"""Prefill attention of others, through PyTorch, at the shapes of attend_lab.

    torch_attention.py [--contexts 8192,16384,32768] [--runs 20]

FlashAttention-2 and cuDNN behind torch.nn.functional.scaled_dot_product_attention: causal, float16, every head
with keys and values of its own (GQA groups expanded: they read contiguous tensors, no pages, no frames, no
masks). Floating point operations count causal pairs once; times are medians of CUDA events. Needs PyTorch and
a GPU; a back end that refuses a shape says why.
"""
import argparse
import statistics
import sys

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    sys.exit(f"torch_attention.py: {error}: install PyTorch to compare with it")

SHAPES = (("1.5b d 128", 12, 128), ("0.5b d 64", 14, 64))
BACKENDS = (("FlashAttention-2", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION))
WARM_UP_RUNS = 3


def median_ms(call, runs):
    for _ in range(WARM_UP_RUNS):
        call()
    times = []
    for _ in range(runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def measure(name, backend, shape, context, runs):
    title, heads, dim = shape
    case = f"prefill {title} {context // 1024}k"
    q, k, v = (torch.randn(1, heads, context, dim, device="cuda", dtype=torch.float16) for _ in range(3))
    try:
        with sdpa_kernel([backend]), torch.no_grad():
            ms = median_ms(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), runs)
    except RuntimeError as error:
        print(f"{case:30} {name:18} refused: {str(error).splitlines()[0]}", flush=True)
        return
    operations = 4.0 * context * (context + 1) / 2 * heads * dim
    print(f"{case:30} {name:18} {ms:9.4f} ms  {operations / ms / 1e9:6.1f} TFLOP/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", default="8192,16384,32768")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch_attention.py: PyTorch finds no GPU")
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}")
    torch.manual_seed(7)
    for context in (int(part) for part in options.contexts.split(",")):
        for shape in SHAPES:
            for name, backend in BACKENDS:
                measure(name, backend, shape, context, options.runs)


if __name__ == "__main__":
    main()
