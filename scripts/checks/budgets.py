"""Sizes (lines, functions, parameters, columns), include guards, and words that no file may hold."""

import re

from . import cpp_source

_HEADERS = (".h", ".hpp", ".cuh")


def check_file_lines(tree, config):
    for path in tree.cpp_files():
        rule = "header_lines" if path.endswith(_HEADERS) else "source_lines"
        lines, limit = tree.text(path).count("\n"), config["budgets"][rule]
        if lines > limit:
            yield rule, path, 1, "", f"{lines} lines, {limit} are allowed"


def check_functions(tree, config):
    budgets = config["budgets"]
    for path in tree.cpp_files():
        kernel = path.startswith(tuple(budgets["kernel_folders"]))
        limit = budgets["kernel_function_lines" if kernel else "function_lines"]
        for function in cpp_source.functions(tree.text(path)):
            if function.lines > limit:
                yield "function_lines", path, function.line, function.name, f"{function.name} has {function.lines} lines, {limit} are allowed"
            if function.parameters > budgets["parameters"]:
                message = f"{function.name} has {function.parameters} parameters, {budgets['parameters']} are allowed"
                yield "parameters", path, function.line, function.name, message


def check_columns(tree, config):
    limit = config["budgets"]["columns"]
    for path in tree.cpp_files():
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            if len(line) > limit:
                yield "columns", path, number, "", f"{len(line)} columns, {limit} are allowed"


def check_include_guard(tree, config):
    for path in tree.cpp_files():
        if not path.endswith(_HEADERS):
            continue
        code = re.sub(r"//[^\n]*|/\*.*?\*/", "", tree.text(path), flags=re.DOTALL).lstrip()
        if path.endswith("-inl.h"):  # read once for each instruction set by Highway's foreach_target
            if "HWY_TARGET_TOGGLE" not in code:
                yield "pragma_once", path, 1, "", "an -inl.h header has the HWY_TARGET_TOGGLE guard"
        elif not code.startswith("#pragma once"):
            yield "pragma_once", path, 1, "", "a header starts with #pragma once, after its comment"


def check_words(tree, config):
    patterns = [re.compile(p) for p in config["words"]["forbidden"]]
    allowed = tuple(config["words"]["allowed"])
    for path in tree.files():
        if path.startswith(allowed):
            continue
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            for pattern in patterns:
                match = pattern.search(line)
                if match:
                    yield "words", path, number, "", f"'{match.group(0)}' may not stand in a tracked file"


CHECKS = [check_file_lines, check_functions, check_columns, check_include_guard, check_words]
