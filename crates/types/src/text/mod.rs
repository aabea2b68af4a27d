//! PostgreSQL's text forms of values.
