//! The estimated sizes of plans in memory.

use datafusion::{
    common::{
        Result,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::{Expr, LogicalPlan},
};

/// The size of a plan's node without its expressions and columns.
const NODE_BYTES: u64 = 512;

/// The size of a column of a node's schema: its field is shared with others, its name often is
/// not.
pub(super) const COLUMN_BYTES: u64 = 96;

/// The size of a part of an expression, with the names and values in it.
const EXPRESSION_BYTES: u64 = size_of::<Expr>() as u64 + 64;

/// The estimated size of a logical plan in memory.
pub(super) fn bytes_of(plan: &LogicalPlan) -> Result<u64> {
    let mut bytes = 0;
    plan.apply_with_subqueries(|node| {
        bytes += NODE_BYTES + COLUMN_BYTES * node.schema().fields().len() as u64;
        node.apply_expressions(|expression| {
            expression.apply(|_| {
                bytes += EXPRESSION_BYTES;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(bytes)
}
