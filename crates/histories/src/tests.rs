//! The checker on planted anomalies, on histories of a simulated database that is right or is
//! not, and beside a search through all schedules.

mod generated;
mod oracle;
mod planted;
mod simulator;
