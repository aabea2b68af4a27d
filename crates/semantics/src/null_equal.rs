//! Joins whose keys match where both are NULL.
//!
//! DataFusion states for a join, not for each of its keys, whether NULLs match. `IS NOT DISTINCT
//! FROM` makes such a join, and so do correlated LATERAL items. Two of its rules add other keys,
//! whose NULLs must not match, and thus return too many rows:
//!
//! | rule | what it would do |
//! |---|---|
//! | `extract_equijoin_predicate` | makes keys of equalities in the join's filter |
//! | `eliminate_cross_join` | makes one join of several, of which one says for all whether NULLs match |
//!
//! The first does not run on such joins; the second sees them as leaves:
//!
//! ```text
//!  Join a = b                         Join a = b
//!   ├── Join c IS NOT DISTINCT d  ─►   ├── Leaf 0        Leaf 0: Join c IS NOT DISTINCT d
//!   │    ├── x                         └── z                      ├── x
//!   │    └── y                                                    └── y
//!   └── z
//! ```

use std::{cmp::Ordering, fmt, sync::Arc};

use datafusion::{
    common::{
        DFSchemaRef, JoinType, NullEquality, Result, internal_datafusion_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore},
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

/// The rule itself, or one that keeps such joins apart from others.
pub(crate) fn apart(
    rule: Arc<dyn OptimizerRule + Send + Sync>,
) -> Arc<dyn OptimizerRule + Send + Sync> {
    match rule.name() {
        "extract_equijoin_predicate" => Arc::new(Apart {
            rule,
            are_leaves: false,
        }),
        "eliminate_cross_join" => Arc::new(Apart {
            rule,
            are_leaves: true,
        }),
        _ => rule,
    }
}

#[derive(Debug)]
struct Apart {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
    /// Whether the rule sees the whole plan at once, where such joins become leaves; else it sees
    /// a node at a time.
    are_leaves: bool,
}

impl OptimizerRule for Apart {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !self.are_leaves {
            return match matches_nulls(&plan) {
                true => Ok(Transformed::no(plan)),
                false => self.rule.rewrite(plan, config),
            };
        }
        let mut joins = Vec::new();
        let plan = plan.transform_down_with_subqueries(|node| {
            if !(matches_nulls(&node) && is_inner(&node)) {
                return Ok(Transformed::no(node));
            }
            let leaf = Leaf {
                at: joins.len(),
                schema: Arc::clone(node.schema()),
            };
            joins.push(node);
            let node = Arc::new(leaf);
            let leaf = LogicalPlan::Extension(Extension { node });
            Ok(Transformed::new(leaf, true, TreeNodeRecursion::Jump))
        })?;
        let rewritten = self.rule.rewrite(plan.data, config)?;
        if joins.is_empty() {
            return Ok(rewritten);
        }
        let restored = rewritten.data.transform_down_with_subqueries(|node| {
            let leaf = match &node {
                LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref::<Leaf>(),
                _ => None,
            };
            let Some(leaf) = leaf else {
                return Ok(Transformed::no(node));
            };
            let join = joins.get(leaf.at).cloned();
            let join = join.ok_or_else(|| internal_datafusion_err!("a leaf without a join"))?;
            let join = join.map_children(|side| self.rewrite(side, config))?;
            Ok(Transformed::new(join.data, true, TreeNodeRecursion::Jump))
        })?;
        Ok(Transformed::yes(restored.data))
    }
}

fn matches_nulls(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join)
        if join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty())
}

fn is_inner(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join) if join.join_type == JoinType::Inner)
}

/// Stands for a join while a rule runs.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Leaf {
    at: usize,
    schema: DFSchemaRef,
}

impl PartialOrd for Leaf {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.at.partial_cmp(&other.at)
    }
}

impl UserDefinedLogicalNodeCore for Leaf {
    fn name(&self) -> &str {
        "Leaf"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leaf: {}", self.at)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, _: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self {
            at: self.at,
            schema: Arc::clone(&self.schema),
        })
    }
}
