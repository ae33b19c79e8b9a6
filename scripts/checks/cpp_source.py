"""A C++ file as the checks see it: includes, and the functions with their lines and parameters.

Not a compiler: comments, literals and preprocessor lines are blanked out, then braces are matched, and what stands
before a brace decides whether it opens a scope, a function or an initialiser. That is enough for code that
clang-format has laid out, takes about a millisecond a file, and needs no compilation database.
"""

import re
from dataclasses import dataclass

_BLANKED = re.compile(
    r"""//(?:[^\n\\]|\\.|\\\n)*          # line comment
      | /\*.*?\*/                         # block comment
      | R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"   # raw string
      | "(?:[^"\\\n]|\\.)*"               # string
      | (?<![0-9A-Za-z_])'(?:[^'\\\n]|\\.)+'   # character (not a digit separator)
    """,
    re.VERBOSE | re.DOTALL,
)
_PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)
_OPERATOR = re.compile(r"\boperator\s*(?:\(\s*\)|\[\s*\]|[^\s\w(]{1,3}|\"\"\s*\w+|[\w:<>*& ]+)(?=\s*\()")
_SCOPE = re.compile(r"^(?:inline\s+)?namespace\b|^extern\s*\"?\s*\"?$")
_CLASS = re.compile(r"^(?:typedef\s+|static\s+|inline\s+|constexpr\s+|friend\s+)*(?:class|struct|union|enum)\b")
_NOT_FUNCTIONS = {"alignas", "decltype", "noexcept", "requires", "__attribute__", "sizeof", "if", "for", "while", "switch"}


@dataclass(frozen=True)
class Include:
    line: int
    path: str
    quoted: bool


@dataclass(frozen=True)
class Function:
    name: str
    line: int
    lines: int  # from the first line of the signature to the closing brace; 0 for a declaration
    parameters: int


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def _blank_literal(match):
    text = match.group(0)
    if text[0] in "\"'":  # keep the quotes, so that `extern "C"` and `"" _suffix` can still be told
        return text[0] + re.sub(r"[^\n]", " ", text[1:-1]) + text[-1]
    return _blank(match)


def strip(text):
    """The text with comments, literals and preprocessor lines blanked; every offset and line stays where it was."""
    return _PREPROCESSOR.sub(_blank, _BLANKED.sub(_blank_literal, text))


def includes(text):
    without_comments = _BLANKED.sub(lambda m: m.group(0) if m.group(0)[0] in "\"'" else _blank(m), text)
    return [
        Include(text.count("\n", 0, m.start()) + 1, m.group(2), m.group(1) == '"')
        for m in _INCLUDE.finditer(without_comments)
    ]


def _close_angle(text, opening):
    """Offset after the `>` that closes text[opening] == '<', or None."""
    angles = brackets = 0
    for i in range(opening, len(text)):
        c = text[i]
        if c in "([{":
            brackets += 1
        elif c in ")]}":
            brackets -= 1
        elif c == "<" and brackets == 0:
            angles += 1
        elif c == ">" and brackets == 0 and text[i - 1] != "-":
            angles -= 1
            if angles == 0:
                return i + 1
    return None


def _strip_template(head):
    """The head without leading template<...> and [[attributes]]."""
    head = head.lstrip()
    while re.match(r"template\s*<", head):
        end = _close_angle(head, head.index("<"))
        if end is None:
            return head
        head = head[end:].lstrip()
    return re.sub(r"^(?:\[\[[^\]]*\]\]\s*)+", "", head)


def _opens_class(head):
    if not _CLASS.match(head):
        return False
    head = re.sub(r"\b(?:alignas|__attribute__)\s*\([^()]*\)+", "", head)
    while "<" in head:
        opening = head.index("<")
        end = _close_angle(head, opening)
        head = head[:opening] + (head[end:] if end else "")
    return "(" not in head


def _split_top(text, separator):
    """Parts of `text` cut at `separator` outside of any bracket."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "<" and not text.startswith(("<<", "<="), i) and not text.startswith("<<", i - 1):
            depth += 1
        elif c == ">" and depth > 0 and text[i - 1] not in "-=":
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return parts


def _first_call(head):
    """(name, parameter text, rest) of the first name(...) outside of other brackets, or None."""
    operator = _OPERATOR.search(head)
    position = operator.start() if operator else 0
    for match in re.finditer(r"\(", head[operator.end() :] if operator else head):
        opening = match.start() + (operator.end() if operator else 0)
        before = head[position:opening] if operator else head[:opening]
        name = operator.group(0).strip() if operator else None
        if not operator:
            word = re.search(r"([~\w:]+(?:<[^<>()]*>)?)\s*$", before)
            if not word or word.group(1) in _NOT_FUNCTIONS:
                continue
            if before.count("(") != before.count(")"):
                continue
            name = word.group(1)
        depth = 0
        for i in range(opening, len(head)):
            depth += {"(": 1, ")": -1}.get(head[i], 0)
            if depth == 0:
                return name, head[opening + 1 : i], head[i + 1 :]
        return None
    return None


def _has_top_level_assignment(head):
    head = _OPERATOR.sub("", head)
    depth = 0
    for i, c in enumerate(head):
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "=" and depth == 0 and head[i - 1 : i] not in ("=", "!", "<", ">") and head[i + 1 : i + 2] != "=":
            return True
    return False


def _parameters(text):
    text = text.strip()
    if not text or text == "void":
        return 0
    return len(_split_top(text, ","))


def _in_initializer_list(rest):
    """True when a `{` after this text (what follows the parameters) is a member's initialiser, not the body."""
    colon = re.search(r"(?<!:):(?!:)", rest)
    if not colon:
        return False
    return bool(re.search(r"[\w>]$", rest.rstrip())) and rest.rstrip()[-1:] not in ")}"


def _close(text, opening):
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, opening):
        depth += 1 if match.group(0) == "{" else -1
        if depth == 0:
            return match.start()
    return len(text) - 1


def _name(name, parameters):
    if re.fullmatch(r"[A-Z_]+", name):  # TEST(Suite, Name) and the like
        return f"{name}({' '.join(parameters.split())})"
    return name


def functions(text):
    """Definitions and declarations at namespace and class scope."""
    code = strip(text)
    found = []
    start = i = 0
    end = len(code)
    step = re.compile(r"[{};(]")

    def record(call, at, until):
        line = code.count("\n", 0, at) + 1
        lines = code.count("\n", at, until) + 1 if until is not None else 0
        found.append(Function(_name(call[0], call[1]), line, lines, 0 if call[0].isupper() else _parameters(call[1])))

    while True:
        match = step.search(code, i)
        if not match:
            return found
        i = match.start()
        c = code[i]
        if c == "(":
            depth = 0
            while i < end:
                depth += {"(": 1, ")": -1}.get(code[i], 0)
                i += 1
                if depth == 0:
                    break
            continue
        raw = code[start:i]
        at = start + len(raw) - len(raw.lstrip())
        head = re.sub(r"^\s*(?:(?:public|private|protected)\s*:\s*)+", "", raw)
        at += len(raw.lstrip()) - len(head.lstrip())
        head = _strip_template(head)
        i += 1
        if c == ";":
            call = _first_call(head)
            if call and not head.startswith(("using", "typedef", "static_assert", "friend class", "return")):
                if not _has_top_level_assignment(re.sub(r"=\s*(?:0|default|delete)\s*$", "", head)):
                    record(call, at, None)
            start = i
        elif c == "}":
            start = i
        elif _SCOPE.match(head.strip()):
            start = i
        elif _opens_class(head):
            start = i
        else:
            call = _first_call(head)
            closing = _close(code, i - 1)
            is_lambda = _has_top_level_assignment(head) and head.rstrip().endswith(")") and "[" in head
            if call and not _has_top_level_assignment(head):
                if _in_initializer_list(call[2]):
                    i = closing + 1  # a member's braces; the body is still to come
                    continue
                record(call, at, closing)
            elif is_lambda:
                name = re.findall(r"(\w+)\s*=", head)[:1] or ["lambda"]
                record((name[0], "", ""), at, closing)
            i = start = closing + 1
