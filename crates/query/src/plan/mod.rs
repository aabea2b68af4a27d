//! From a parsed statement to a bound plan, under one consistent context; and rules that change
//! DataFusion's plans.

mod arrays;
mod body;
mod calls;
mod chains;
mod constant_columns;
mod context;
mod cooperate;
mod dependent;
mod forms;
mod gate;
mod grouping;
mod grouping_sets;
mod held_top;
mod limits;
mod locking;
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
mod rule;
mod sampling;
mod series;
mod sources;
mod steps;
mod target;
mod twins;
mod whole_rows;
mod wildcards;
mod windows;

pub(crate) use body::query_of;
pub(crate) use constant_columns::{
    BOUND_BY_ALL_KEYS, HIDE_CONSTANTS, ORDER_CHECK, REQUIREMENTS, SORT_AGAIN,
};
pub(crate) use context::{ROW_ID_COLUMN, TARGET_SCHEMA};
pub(crate) use cooperate::COOPERATE_ABOVE_JOINS;
pub(crate) use held_top::{GIVE_TOPS, HOLD_TOPS};
pub(crate) use names::{output_name, rename_outputs};
pub(crate) use origins::{Origin, returned_origins};
pub(crate) use passes::rewrite_expression;
pub(crate) use pieces::{MakeInPieces, PiecesExec};

pub use arrays::{Items, array_parameters, has_function_parameters, read_items, write_arrays};
pub use calls::is_volatile;
pub use context::{Met, StatementContext};
pub use gate::{Gate, Obstacle};
pub use locking::{Locking, first_lock, without_locks};
pub use names::{describe, show_entries};
pub use origins::{Origins, describe_columns, describe_query, origins};
pub use parameters::{
    bare_placeholder, declare, declared_parameters, parameter_count, parameter_type,
};
pub use steps::{StepRows, StepTables};
pub use target::{Target, column_identifiers, table_reference};
