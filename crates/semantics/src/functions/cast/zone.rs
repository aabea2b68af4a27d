//! The session's time zone, as functions see it.

use aerostat_types::ErrorKind;
use datafusion::common::Result;
use datafusion::config::ConfigOptions;

use crate::raise;

/// The session's zone, once it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone(Option<aerostat_types::Zone>);

impl Zone {
    /// Coordinated Universal Time.
    pub(crate) const UTC: Zone = Zone(Some(aerostat_types::Zone::UTC));

    /// Not known yet: what depends on it must wait.
    pub(crate) const UNSETTLED: Zone = Zone(None);

    /// Whether this is [`Zone::UNSETTLED`].
    pub(crate) fn is_unsettled(&self) -> bool {
        self.0.is_none()
    }

    /// The zone that `datafusion.execution.time_zone` names; UTC if it names none.
    pub(crate) fn of(config: &ConfigOptions) -> Zone {
        let name = config.execution.time_zone.as_deref();
        Zone(Some(
            name.and_then(aerostat_types::Zone::named)
                .unwrap_or_default(),
        ))
    }

    /// The zone itself; UTC where it is not known.
    pub(crate) fn get(&self) -> aerostat_types::Zone {
        self.0.unwrap_or_default()
    }

    /// What the session's clock shows at an instant.
    pub(crate) fn local(&self, utc_micros: i64) -> Result<i64> {
        self.get().to_local(utc_micros).ok_or_else(out_of_range)
    }

    /// The instant of a time on the session's clock.
    pub(crate) fn instant(&self, local_micros: i64) -> Result<i64> {
        self.get().to_instant(local_micros).ok_or_else(out_of_range)
    }
}

/// A moment that is no timestamp.
pub(crate) fn out_of_range() -> datafusion::common::DataFusionError {
    raise(ErrorKind::DatetimeFieldOverflow, "timestamp out of range")
}
