"""Random expressions: columns in scope, literals, and the templates of `grammar`."""

import re

from . import grammar, values
from .tree import Tree

HOLE = re.compile(r"\{(=?)(\w+)\}|«([^»]*)»")


class Relation:
    """What a FROM item offers: columns by kind, and the columns that tell its rows apart."""

    def __init__(self, alias, columns, key=None, hidden=()):
        self.alias = alias
        self.columns = columns  # [(name, kind)]
        self.key = key  # name, or None if its rows may be alike
        self.hidden = hidden


class Scope:
    def __init__(self, relations=(), outer=None):
        self.relations = list(relations)
        self.outer = outer

    def columns(self, kind):
        """References to columns of this kind: those of this query, then the outer one's."""
        own = [f"{each.alias}.{name}" for each in self.relations for name, its in each.columns if its == kind]
        return own, (self.outer.columns(kind)[0] if self.outer else [])

    def total_order(self):
        """Columns that decide the order of all rows, if there are such."""
        if not self.relations or any(each.key is None for each in self.relations):
            return None
        return [f"{each.alias}.{each.key}" for each in self.relations]


class Expressions:
    """Makes expressions of a kind; `subquery` is asked for queries within them."""

    def __init__(self, dice, subquery=None):
        self.dice = dice
        self.subquery = subquery

    def pick(self, weighted):
        weights = [each[0] if isinstance(each, tuple) else 1 for each in weighted]
        chosen = self.dice.choices(weighted, weights)[0]
        return chosen[1] if isinstance(chosen, tuple) else chosen

    def kind(self, scope):
        """Mostly a kind that the scope has columns of."""
        there = [kind for each in scope.relations for _, kind in each.columns]
        return self.dice.choice(there) if there and self.dice.random() < 0.8 else self.dice.choice(values.ALL)

    def make(self, kind, scope, depth):
        roll = self.dice.random()
        if depth > 0 and roll < 0.6:
            return self.compound(kind, scope, depth)
        own, outer = scope.columns(kind)
        if outer and (not own or self.dice.random() < 0.3):
            return self.leaf(kind, self.dice.choice(outer))
        if own and self.dice.random() < 0.8:
            return self.leaf(kind, self.dice.choice(own))
        return self.constant(kind)

    def leaf(self, kind, text):
        return Tree(kind, text, simple=grammar.SIMPLE[kind])

    def constant(self, kind):
        if self.dice.random() < 0.08:
            return Tree(kind, f"NULL::{values.CASTS[kind]}")
        text, value = values.literal(self.dice, kind)
        return Tree(kind, text, simple=grammar.SIMPLE[kind], parameter=(values.CASTS[kind], value))

    def compound(self, kind, scope, depth):
        roll = self.dice.random()
        if roll < 0.12 and self.subquery:
            made = self.subquery(kind, scope, depth)
            if made:
                return made
        if roll < 0.3:
            choices = [*grammar.CHOICES, grammar.LARGEST] if kind not in ("bytea",) else grammar.CHOICES
            return self.fill(kind, self.pick(choices).replace("{K}", f"{{{kind}}}"), scope, depth - 1)
        return self.fill(kind, self.pick(grammar.SCALARS[kind]), scope, depth - 1)

    def fill(self, kind, template, scope, depth, **options):
        """A tree of the template; options are the tree's."""
        parts, groups, twins, at = [], {}, {}, 0
        for hole in HOLE.finditer(template):
            parts.append(template[at : hole.start()])
            at = hole.end()
            same, name, texts = hole.groups()
            if texts is not None:
                parts.append(self.dice.choice(re.split(r"(?<!\\)\|", texts)).replace("\\|", "|"))
                continue
            if name in grammar.GROUPS:
                if name not in groups:
                    groups[name] = self.of_group(name, scope)
                name = groups[name]
            if same and name in twins:
                parts.append(twins[name].text())
                continue
            made = self.bare_literal(name) or self.make(name, scope, depth)
            twins[name] = made
            parts.append(made.text() if same else made)
        parts.append(template[at:])
        return Tree(kind, *(part for part in parts if part != ""), **{"simple": grammar.SIMPLE[kind], **options})

    def of_group(self, name, scope):
        kinds = grammar.GROUPS[name]
        there = [kind for each in scope.relations for _, kind in each.columns if kind in kinds]
        return self.dice.choice(there if there and self.dice.random() < 0.7 else kinds)

    def bare_literal(self, kind):
        """Now and then a literal without a cast."""
        if kind in ("int", "text") and self.dice.random() < 0.12:
            return Tree(kind, values.bare(self.dice, kind))
        return None
