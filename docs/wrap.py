"""Wraps the prose of Markdown pages at 100 columns: python3 docs/wrap.py PAGE...

Code, tables, headings and pictures stay as they are. A page that is wrapped already does not change.
"""

import re
import sys
import textwrap
from pathlib import Path

COLUMNS = 100
UNBROKEN_MAX = 80
ITEM = re.compile(r"( *)([-*]|\d+\.) ")
# Stands for a space at which no line may be broken.
GLUE = "\x00"


def glued(text):
    """Spaces within code spans and short links do not break: a line that begins inside of one is hard to read."""
    keep = lambda found: found.group().replace(" ", GLUE) if len(found.group()) <= UNBROKEN_MAX else found.group()
    return re.sub(r"`[^`]+`|\[[^\]]+\]\([^)]+\)", keep, text)


def starts_block(line):
    """Whether a line would be read as a list, a heading or a table if it came first."""
    return bool(re.match(r"([-*+]|\d+[.)]|#+|>|\||=+|-+)(\s|$)", line))


def wrapped(lines, first, rest):
    text = glued(" ".join(line.strip() for line in lines))
    options = {"break_long_words": False, "break_on_hyphens": False}
    result = textwrap.wrap(text, COLUMNS, initial_indent=first, subsequent_indent=rest, **options)
    for at in range(1, len(result)):
        # A dash or a number that has come to stand first would make a list: it goes back to the line before.
        while starts_block(result[at].strip()):
            word, _, left = result[at].strip().partition(" ")
            result[at - 1] += " " + word
            result[at] = rest + left
    return [line.replace(GLUE, " ") for line in result if line.strip()]


def page(text):
    out, block, indents = [], [], ("", "")
    fence = None

    def flush():
        if block:
            out.extend(wrapped(block, *indents))
            block.clear()

    for line in text.split("\n"):
        stripped = line.strip()
        if fence:
            out.append(line)
            if stripped.startswith(fence) and not stripped.strip("`"):
                fence = None
            continue
        if stripped.startswith("```"):
            flush()
            fence = "```"
            out.append(line)
        elif not stripped or stripped.startswith(("#", "|", "![", "<", ">")):
            flush()
            out.append(line)
        elif item := ITEM.match(line):
            flush()
            lead = item.group()
            indents = (lead, " " * len(lead))
            block.append(line[len(lead) :])
        else:
            if not block:
                lead = " " * (len(line) - len(line.lstrip()))
                indents = (lead, lead)
            block.append(line)
    flush()
    return "\n".join(out)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        before = path.read_text()
        after = page(before)
        if after != before:
            path.write_text(after)
            print(name)
