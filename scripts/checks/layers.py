"""Who may include whom: the module directions, CUDA's folder, and the promise of the public headers."""

import re
from pathlib import PurePosixPath

from . import cpp_source


def _module(path):
    parts = PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def check_module_directions(tree, config):
    modules = config["modules"]
    for path in tree.cpp_files():
        module = _module(path)
        if module is None:
            continue
        if module not in modules:
            yield "layer", path, 1, "", f"src/{module} is no module of scripts/check_layers.toml"
            continue
        for include in cpp_source.includes(tree.text(path)):
            target = PurePosixPath(include.path).parts[0]
            if include.path.startswith("../") or "/../" in include.path:
                yield "layer", path, include.line, "", f'"{include.path}" must be written from src/'
            if not include.quoted or target not in modules or target == module:
                continue
            if target not in modules[module] and include.path not in modules[module]:
                yield "layer", path, include.line, "", f"{module} may not include {include.path} ({target})"


def check_modules_exist_once(tree, config):
    """Every quoted include of the project's own resolves, so no rule is passed by a path that means something else."""
    roots = ("src/", "include/", "tests/", "bench/", "fuzz/", "tests/support/")
    generated = {"rhapsode/version.h"}
    for path in tree.cpp_files():
        folder = str(PurePosixPath(path).parent)
        for include in cpp_source.includes(tree.text(path)):
            first = PurePosixPath(include.path).parts[0]
            if not include.quoted or (first not in config["modules"] and first != "rhapsode"):
                continue
            if include.path in generated or any(tree.has(root + include.path) for root in roots):
                continue
            if not tree.has(f"{folder}/{include.path}"):
                yield "layer", path, include.line, "", f'"{include.path}" is not in the tree'


def check_cuda(tree, config):
    starts = tuple(config["cuda"]["headers"])
    for path in tree.cpp_files():
        inside = "cuda" in PurePosixPath(path).parts[:-1]
        if path.endswith((".cu", ".cuh")) and not inside:
            yield "layer", path, 1, "", "CUDA sources lie in a folder named cuda"
        for include in cpp_source.includes(tree.text(path)):
            if include.path.startswith(starts) and not inside:
                yield "layer", path, include.line, "", f"CUDA header {include.path} outside of a folder named cuda"


def check_public_headers(tree, config):
    folder = config["public"]["folder"] + "/"
    headers = [p for p in tree.files() if p.startswith(folder) and p.endswith((".h", ".h.in"))]
    limit = config["public"]["headers"]
    if len(headers) > limit:
        yield "layer", folder, 1, "", f"{len(headers)} public headers, {limit} are allowed"
    for path in headers:
        for include in cpp_source.includes(tree.text(path)):
            if include.quoted and include.path.startswith("rhapsode/"):
                continue
            if not include.quoted and re.fullmatch(r"[a-z_0-9]+", include.path):
                continue
            yield "layer", path, include.line, "", f"a public header includes {include.path}: only the standard library and rhapsode/ are allowed"


CHECKS = [check_module_directions, check_modules_exist_once, check_cuda, check_public_headers]
