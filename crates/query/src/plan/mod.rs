//! From a parsed statement to a physical plan, under one consistent context.

mod clauses;
mod context;
mod cooperate;
mod forms;
mod gate;
pub(crate) mod locking;
mod names;
mod numbering;
mod parameters;
mod target;

pub(crate) use context::{ROW_ID_COLUMN, StatementContext, TARGET_SCHEMA};
pub(crate) use cooperate::CooperateAboveJoins;
pub(crate) use forms::rewrite_forms;
pub(crate) use gate::{Gate, Obstacle};
pub(crate) use names::{describe, name_outputs, output_name, rename_outputs, visible_name};
pub(crate) use numbering::in_order;
pub(crate) use parameters::{bare_placeholder, declare, declared_parameters, parameter_count};
pub(crate) use target::{Target, column_identifiers, table_reference};
