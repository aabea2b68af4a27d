"""Statements as trees of text, so that they can be made smaller piece by piece.

A tree has a tag (what may stand in its place), parts (text and trees), and says how it may shrink: it
may be left out if `optional`, children of a `Many` may be left out down to `least`, and an expression
gives way to an expression of the same tag below it, or to `simple`, the plainest of its type.
"""


class Tree:
    __slots__ = ("tag", "parts", "optional", "simple", "parameter")

    def __init__(self, tag, *parts, optional=False, simple=None, parameter=None):
        self.tag = tag
        self.parts = list(parts)
        self.optional = optional
        self.simple = simple
        self.parameter = parameter  # the SQL type, if a parameter may carry this literal

    def text(self):
        return "".join(part if isinstance(part, str) else part.text() for part in self.parts)

    def copy(self):
        parts = [part if isinstance(part, str) else part.copy() for part in self.parts]
        twin = self.__class__.__new__(self.__class__)
        for slot in ("tag", "optional", "simple", "parameter"):
            setattr(twin, slot, getattr(self, slot))
        twin.parts = parts
        return twin

    def children(self):
        return [part for part in self.parts if not isinstance(part, str)]

    def walk(self):
        yield self
        for child in self.children():
            yield from child.walk()

    def shrinks(self):
        """Smaller trees for this one's place, largest steps first."""
        if self.optional:
            yield Tree(self.tag)
        if self.simple is not None and self.text() not in (self.simple, f"({self.simple})"):
            yield Tree(self.tag, self.simple)
        below = [tree for child in self.children() for tree in child.walk()]
        for tree in sorted(below, key=lambda tree: len(tree.text())):
            if tree.tag == self.tag and tree.parts and tree.text() != self.text():
                yield tree


class Many(Tree):
    """Items with a separator between them, at least `least` of which stay."""

    __slots__ = ("separator", "least")

    def __init__(self, tag, items, separator=", ", least=1, **options):
        super().__init__(tag, *items, **options)
        self.separator = separator
        self.least = least

    def text(self):
        return self.separator.join(part if isinstance(part, str) else part.text() for part in self.parts)

    def copy(self):
        twin = super().copy()
        twin.separator, twin.least = self.separator, self.least
        return twin

    def shrinks(self):
        yield from super().shrinks()
        if len(self.parts) > self.least:
            for at in range(len(self.parts)):
                rest = self.parts[:at] + self.parts[at + 1 :]
                yield Many(self.tag, rest, self.separator, self.least, optional=self.optional)


def smaller(tree):
    """Every tree that differs from this one in one place, where it is smaller."""
    for shrunk in tree.shrinks():
        yield shrunk
    for at, part in enumerate(tree.parts):
        if isinstance(part, str):
            continue
        for shrunk in smaller(part):
            twin = tree.copy()
            twin.parts[at] = shrunk
            yield twin
