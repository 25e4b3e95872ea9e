"""Draws a terminal's screen, as `tmux capture-pane -e -p` prints it, as an SVG: stdin to stdout, the window's title as the argument.

Knows what the demo uses: bold, dim, reverse, underline, and colours of 16, 256 and 24 bits.
"""

import re
import sys
from html import escape

CELL_WIDTH, LINE_HEIGHT, FONT_SIZE = 8.4, 18, 14
PADDING, TITLE_HEIGHT = 14, 30
FOREGROUND, BACKGROUND = "#d8dee9", "#1e222a"
BASIC = [
    "#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
    "#6b7386", "#ff7b86", "#b5e890", "#ffd68a", "#82c4ff", "#e29bf5", "#7fdbe6", "#ffffff",
]  # fmt: skip


def indexed(number):
    """The colour of xterm's palette."""
    if number < 16:
        return BASIC[number]
    if number < 232:
        steps = [0, 95, 135, 175, 215, 255]
        number -= 16
        return "#%02x%02x%02x" % (steps[number // 36], steps[number // 6 % 6], steps[number % 6])
    return "#%02x%02x%02x" % ((8 + (number - 232) * 10,) * 3)


class Style:
    def __init__(self):
        self.reset()

    def reset(self):
        self.fg = self.bg = None
        self.bold = self.dim = self.reverse = self.underline = False

    def apply(self, codes):
        codes = [int(code or 0) for code in codes.split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.reset()
            elif code in (1, 2, 4, 7):
                setattr(self, {1: "bold", 2: "dim", 4: "underline", 7: "reverse"}[code], True)
            elif code == 22:
                self.bold = self.dim = False
            elif code in (24, 27):
                setattr(self, {24: "underline", 27: "reverse"}[code], False)
            elif code in (38, 48):
                kind = codes.pop(0)
                if kind == 5:
                    colour = indexed(codes.pop(0))
                else:
                    colour = "#%02x%02x%02x" % tuple(codes[:3])
                    del codes[:3]
                setattr(self, "fg" if code == 38 else "bg", colour)
            elif code in (39, 49):
                setattr(self, "fg" if code == 39 else "bg", None)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.fg = BASIC[code - 30 if code < 90 else code - 82]
            elif 40 <= code <= 47 or 100 <= code <= 107:
                self.bg = BASIC[code - 40 if code < 100 else code - 92]

    def drawn(self):
        """Foreground, background and further attributes, as they are drawn."""
        fg, bg = self.fg or FOREGROUND, self.bg
        if self.reverse:
            fg, bg = bg or BACKGROUND, fg
        more = ' font-weight="bold"' * self.bold + ' opacity="0.6"' * self.dim
        return fg, bg, more + ' text-decoration="underline"' * self.underline


def runs(line, style):
    """Pieces of a line of one style each: column, text, what is drawn."""
    column = 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            style.apply(part[2:-1])
        elif part:
            yield column, part, style.drawn()
            column += len(part)


def svg(screen, title):
    lines = screen.rstrip("\n").split("\n")
    columns = max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines)
    width = columns * CELL_WIDTH + 2 * PADDING
    height = len(lines) * LINE_HEIGHT + TITLE_HEIGHT + PADDING
    shapes, texts, style = [], [], Style()
    for row, line in enumerate(lines):
        top = TITLE_HEIGHT + row * LINE_HEIGHT
        for column, text, (fg, bg, more) in runs(line, style):
            x, span = PADDING + column * CELL_WIDTH, len(text) * CELL_WIDTH
            if bg:
                shapes.append(f'<rect x="{x:.1f}" y="{top}" width="{span:.1f}" height="{LINE_HEIGHT}" fill="{bg}"/>')
            # Words and bars are placed one by one, so that columns stay in line whatever font the reader has.
            for word in re.finditer(r"█+|[^\s█]+", text):
                x, span = PADDING + (column + word.start()) * CELL_WIDTH, len(word.group()) * CELL_WIDTH
                if word.group()[0] == "█":
                    shapes.append(
                        f'<rect x="{x:.1f}" y="{top + 2}" width="{span:.1f}" height="{LINE_HEIGHT - 4}" fill="{fg}"/>'
                    )
                else:
                    texts.append(
                        f'<text x="{x:.1f}" y="{top + 13}" textLength="{span:.1f}"'
                        f' fill="{fg}"{more}>{escape(word.group())}</text>'
                    )
    dots = "".join(
        f'<circle cx="{PADDING + 6 + at * 18}" cy="15" r="5" fill="{colour}"/>'
        for at, colour in enumerate(["#e06c75", "#e5c07b", "#98c379"])
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="{BACKGROUND}"/>',
            f'<g>{dots}</g><text x="{width / 2:.0f}" y="19" text-anchor="middle" font-family="sans-serif" '
            f'font-size="13" fill="#8a92a5">{escape(title)}</text>',
            *shapes,
            f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="{FONT_SIZE}">',
            *texts,
            "</g>",
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(svg(sys.stdin.read(), sys.argv[1]))
