//! Functions on texts.

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    vec![]
}
