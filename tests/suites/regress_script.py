"""Reads PostgreSQL's regression scripts: psql's rules for where a statement ends.

psql's own commands are passed over, but for `\\set filename`, which names a file of rows for COPY.
"""

import re

COPY_IN = re.compile(r"\bcopy\b[^;]*\bfrom\s+stdin", re.I)
COPY_FILE = re.compile(r"\bcopy\b[^;]*\bfrom\s+:'filename'", re.I)


class Statement:
    def __init__(self, line, text, data=None):
        self.line = line
        self.text = text
        self.data = data

    def of_file(self, file):
        """Rows come by the connection, not from a file that the server reads."""
        self.text = self.text.replace(":'filename'", "STDIN")
        self.file = file


def statements(text):
    """The statements of a script: psql's rules for semicolons, quotes, comments and its own commands."""
    made, line, data, file = [], 0, None, None
    state, depth = State(), []
    for number, content in enumerate(text.splitlines(), 1):
        if data is not None:
            if content == "\\.":
                data = None
            else:
                data.append(content + "\n")
            continue
        if state.plain() and not "".join(depth).strip() and content.lstrip().startswith("\\"):
            if named := re.match(r"\s*\\set filename :abs_srcdir '(.*)'", content):
                file = named[1]
            continue
        if not "".join(depth).strip():
            line, depth = number, []
        rest = content + "\n"
        while rest:
            piece, rest, ended = state.take(rest)
            depth.append(piece)
            if ended:
                sql, line = without_comments("".join(depth), line)
                depth = []
                if sql.strip("; \n"):
                    made.append(Statement(line, sql))
                    if COPY_IN.search(sql):
                        made[-1].data = data = []
                    elif file and ":'filename'" in sql and COPY_FILE.search(sql):
                        made[-1].of_file(file)
                line = number
    return made


def without_comments(text, line):
    """A statement without the comments before it, and its line."""
    before = re.match(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*", text, re.S)[0]
    return text[len(before) :].strip(), line + before.count("\n")


class State:
    """Where in quotes, comments and parentheses a script is."""

    TOKEN = re.compile(r"--[^\n]*|/\*|\*/|\$[A-Za-z_]*\$|[eE]?'|\"|[();]|\\(?:gset|gexec|g|gx|gdesc|bind|crosstabview|;)[^\n]*")

    def __init__(self):
        self.quote = None
        self.parens = 0
        self.body = 0

    def plain(self):
        return self.quote is None

    def take(self, text):
        """Text up to the end of a statement, the rest, and whether it ended."""
        at = 0
        while at < len(text):
            if self.quote is not None:
                at = self.leave(text, at)
                continue
            found = self.TOKEN.search(text, at)
            if not found:
                break
            token, at = found[0], found.end()
            if token == ";" and self.parens == 0:
                return text[:at], text[at:], True
            if token.startswith("\\"):
                return text[: found.start()], "", True
            self.enter(token)
        return text, "", False

    def enter(self, token):
        if token == "(":
            self.parens += 1
        elif token == ")":
            self.parens = max(0, self.parens - 1)
        elif token.startswith("$") or token in ("/*", '"'):
            self.quote = token
        elif token.endswith("'"):
            self.quote = token.lower()

    def leave(self, text, at):
        """The place behind the quote's end, or the end of the text if it goes on."""
        closing = {"/*": "*/", "e'": "'"}.get(self.quote, self.quote)
        while True:
            end = text.find(closing, at)
            if end < 0:
                return len(text)
            if self.quote == "e'" and (end - len(text[:end].rstrip("\\"))) % 2:
                at = end + 1
                continue
            self.quote = None
            return end + len(closing)
