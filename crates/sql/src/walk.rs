//! Walks over syntax trees, compiled once.
//!
//! `sqlparser`'s `Visit::visit` is generic over the visitor down to the last leaf: each visitor
//! makes a copy of the walk over some 600 types, with a check of the stack at every one of them.
//! Twenty visitors were nine tenths of the functions of the crate that had them, and most of its
//! build. Here the walk knows only `Looking` and `Changing`, which call the visitor through a
//! table of its functions.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Function, ObjectName, Query, Select, Statement, TableFactor, TableWithJoins,
    ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};

/// Shows the visitor a tree, as `node.visit(visitor)` does.
pub fn look<N: Visit + ?Sized, V: Visitor>(node: &N, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut kept = Kept {
        visitor,
        broken: None,
    };
    let flow = node.visit(&mut Looking(&mut kept));
    resume(flow, kept.broken)
}

/// Lets the visitor change a tree, as `node.visit(visitor)` does.
pub fn change<N: VisitMut + ?Sized, V: VisitorMut>(
    node: &mut N,
    visitor: &mut V,
) -> ControlFlow<V::Break> {
    let mut kept = Kept {
        visitor,
        broken: None,
    };
    let flow = node.visit(&mut Changing(&mut kept));
    resume(flow, kept.broken)
}

/// Shows the visitor the expressions of a tree, but not those in its subqueries.
pub fn look_own<N: Visit + ?Sized, V: Visitor>(node: &N, visitor: &mut V) -> ControlFlow<V::Break> {
    let subqueries = 0;
    look(
        node,
        &mut Own {
            visitor,
            subqueries,
        },
    )
}

/// Lets the visitor change the expressions of a tree, but not those in its subqueries.
pub fn change_own<N: VisitMut + ?Sized, V: VisitorMut>(
    node: &mut N,
    visitor: &mut V,
) -> ControlFlow<V::Break> {
    let subqueries = 0;
    change(
        node,
        &mut Own {
            visitor,
            subqueries,
        },
    )
}

/// A visitor of expressions, and how many subqueries the walk is in.
struct Own<'v, V> {
    visitor: &'v mut V,
    subqueries: usize,
}

impl<V: Visitor> Visitor for Own<'_, V> {
    type Break = V::Break;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<V::Break> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<V::Break> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<V::Break> {
        match self.subqueries {
            0 => self.visitor.pre_visit_expr(expression),
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expression: &Expr) -> ControlFlow<V::Break> {
        match self.subqueries {
            0 => self.visitor.post_visit_expr(expression),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl<V: VisitorMut> VisitorMut for Own<'_, V> {
    type Break = V::Break;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<V::Break> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<V::Break> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<V::Break> {
        match self.subqueries {
            0 => self.visitor.pre_visit_expr(expression),
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<V::Break> {
        match self.subqueries {
            0 => self.visitor.post_visit_expr(expression),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The relations of an item of FROM: the first, and those that are joined to it.
pub fn factors(table: &TableWithJoins) -> impl Iterator<Item = &TableFactor> {
    std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation))
}

/// An expression without the parentheses around it.
pub fn unnested(mut expression: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expression {
        expression = inner;
    }
    expression
}

/// Calls `each` for every expression in a tree, the outer before the inner.
pub fn expressions<N: Visit + ?Sized, B>(
    node: &N,
    each: impl FnMut(&Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    look(node, &mut Each(each))
}

/// The same for those outside of its subqueries.
pub fn own_expressions<N: Visit + ?Sized, B>(
    node: &N,
    each: impl FnMut(&Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    look_own(node, &mut Each(each))
}

struct Each<F>(F);

impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for Each<F> {
    type Break = B;

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<B> {
        (self.0)(expression)
    }
}

/// Calls `each` for every call of a function in a tree, but not in its subqueries, the outer
/// before the inner.
pub fn own_calls<N: Visit + ?Sized, B>(
    node: &N,
    mut each: impl FnMut(&Function) -> ControlFlow<B>,
) -> ControlFlow<B> {
    own_expressions(node, |expression| match expression {
        Expr::Function(function) => each(function),
        _ => ControlFlow::Continue(()),
    })
}

fn resume<B>(flow: ControlFlow<()>, broken: Option<B>) -> ControlFlow<B> {
    match (flow, broken) {
        (ControlFlow::Break(()), Some(broken)) => ControlFlow::Break(broken),
        _ => ControlFlow::Continue(()),
    }
}

/// A visitor, and what it broke off with.
struct Kept<'v, V, B> {
    visitor: &'v mut V,
    broken: Option<B>,
}

impl<V, B> Kept<'_, V, B> {
    fn keep(&mut self, flow: ControlFlow<B>) -> ControlFlow<()> {
        match flow {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(broken) => {
                self.broken = Some(broken);
                ControlFlow::Break(())
            }
        }
    }
}

/// The walk's own visitor, its calls, and how a [`Kept`] one answers them.
macro_rules! walk {
    ($(#[$doc:meta])* $walk:ident, $calls:ident, $visitor:ident, $($name:ident: $node:ty),+) => {
        trait $calls {
            $(fn $name(&mut self, node: $node) -> ControlFlow<()>;)+
        }

        impl<V: $visitor> $calls for Kept<'_, V, V::Break> {
            $(fn $name(&mut self, node: $node) -> ControlFlow<()> {
                let flow = self.visitor.$name(node);
                self.keep(flow)
            })+
        }

        $(#[$doc])*
        struct $walk<'v>(&'v mut dyn $calls);

        impl $visitor for $walk<'_> {
            type Break = ();

            $(fn $name(&mut self, node: $node) -> ControlFlow<()> {
                self.0.$name(node)
            })+
        }
    };
}

walk!(
    /// Shows a tree.
    Looking, Look, Visitor,
    pre_visit_query: &Query, post_visit_query: &Query,
    pre_visit_select: &Select, post_visit_select: &Select,
    pre_visit_relation: &ObjectName, post_visit_relation: &ObjectName,
    pre_visit_table_factor: &TableFactor, post_visit_table_factor: &TableFactor,
    pre_visit_expr: &Expr, post_visit_expr: &Expr,
    pre_visit_statement: &Statement, post_visit_statement: &Statement,
    pre_visit_value: &ValueWithSpan, post_visit_value: &ValueWithSpan
);

walk!(
    /// Changes a tree.
    Changing, Change, VisitorMut,
    pre_visit_query: &mut Query, post_visit_query: &mut Query,
    pre_visit_select: &mut Select, post_visit_select: &mut Select,
    pre_visit_relation: &mut ObjectName, post_visit_relation: &mut ObjectName,
    pre_visit_table_factor: &mut TableFactor, post_visit_table_factor: &mut TableFactor,
    pre_visit_expr: &mut Expr, post_visit_expr: &mut Expr,
    pre_visit_statement: &mut Statement, post_visit_statement: &mut Statement,
    pre_visit_value: &mut ValueWithSpan, post_visit_value: &mut ValueWithSpan
);
