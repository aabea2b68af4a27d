//! From a parsed statement to a bound plan, under one consistent context, and rules for what
//! DataFusion makes of it.

mod arrays;
mod body;
mod calls;
mod constant_columns;
mod context;
mod cooperate;
mod dependent;
mod forms;
mod gate;
mod grouping;
mod grouping_sets;
mod limits;
pub(crate) mod locking;
mod names;
mod once;
mod ordered;
mod ordered_sets;
mod origins;
mod outer_names;
mod parameters;
mod passes;
mod pieces;
mod positions;
mod recursion;
mod sampling;
mod series;
mod sources;
mod steps;
mod target;
mod twins;
mod whole_rows;
mod wildcards;
mod windows;

pub(crate) use arrays::{
    Items, array_parameters, has_function_parameters, read_items, write_arrays,
};
pub(crate) use body::query_of;
pub(crate) use calls::is_volatile;
pub(crate) use constant_columns::{BoundByAllKeys, HideConstants, SortAgain};
pub(crate) use context::{ROW_ID_COLUMN, StatementContext, TARGET_SCHEMA};
pub(crate) use cooperate::CooperateAboveJoins;
pub(crate) use gate::{Gate, Obstacle};
pub(crate) use names::{describe, output_name, rename_outputs, show_entries};
pub(crate) use origins::{
    Origin, Origins, describe_columns, describe_query, origins, returned_origins,
};
pub(crate) use parameters::{
    bare_placeholder, declare, declared_parameters, parameter_count, parameter_type,
};
pub(crate) use passes::rewrite_expression;
pub(crate) use pieces::{MakeInPieces, PiecesExec};
pub(crate) use steps::StepRows;
pub(crate) use target::{Target, column_identifiers, table_reference};
