//! The catalogue.

mod allocators;
mod bandwidth;
mod batch_writes;
mod bed;
mod calibrator;
mod environments;
mod failures;
mod layouts;
mod mixed_tenants;
mod plan_check;
mod search;
mod tables;
mod users;
mod workload_model;

pub(crate) use allocators::project;

use crate::Experiment;

/// All experiments, in the order in which `all` runs them.
pub static CATALOGUE: &[&dyn Experiment] = &[
    &environments::Environments,
    &calibrator::Calibrator,
    &tables::Projectivity,
    &tables::Selectivity,
    &layouts::Projectivity,
    &layouts::Selectivity,
    &allocators::Allocators,
    &bandwidth::Bandwidth,
    &users::Users,
    &workload_model::WorkloadModel,
    &mixed_tenants::MixedTenants,
    &plan_check::PlanCheck,
    &batch_writes::BatchWrites,
    &failures::Failures,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Results};

    #[test]
    fn experiments_have_names_questions_and_sources() {
        let mut names: Vec<&str> = CATALOGUE.iter().map(|one| one.about().name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CATALOGUE.len());
        assert!(!names.contains(&"all"));
        for experiment in CATALOGUE {
            let about = experiment.about();
            assert!(about.question.ends_with('?'), "{about:?}");
            assert!(!about.environments.is_empty(), "{about:?}");
            let is_file_name = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(about.name.chars().all(is_file_name), "{about:?}");
        }
    }

    #[test]
    fn nothing_follows_from_no_samples() {
        for experiment in CATALOGUE {
            let conclusion = experiment.conclude(&Results::default());
            assert_eq!(
                conclusion.outcome,
                Outcome::Unclear,
                "{:?}",
                experiment.about()
            );
        }
    }
}
