//! Builds of the program: what one says of itself, and whether a node may go on as another.
//!
//! ```text
//!  formats of files   this build writes log 4     reads 2 ─────── 4
//!                     another one                        reads 3 ─────── 5, writes 5:  refused, 2 may be in the folder
//!                                                   reads 2 ─────────── 5, writes 5:  refused while others read 4 at most
//!                                                   reads 2 ─────────── 5, writes 4:  taken; the next build may write 5
//!  between nodes      a range of versions; two nodes speak the newest that both know
//!  documents          have no version: fields that a build does not know it ignores, and writes them back as they were
//! ```
//!
//! So a format is read one build before it is written, and nodes of both builds can lead each other meanwhile.

use std::collections::BTreeMap;

use aerostat_catalog::{BuildName, CATALOG_FORMAT, UnknownFields};
use aerostat_copies::Spoken;
use aerostat_storage::FILE_FORMATS;
use serde::{Deserialize, Serialize};

/// What a build says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Its version.
    pub version: String,
    /// Tells it from others of the same version.
    pub id: String,
    /// What it speaks with other nodes.
    pub between_nodes: Spoken,
    /// Formats of what is on disk and in logs, by what has them.
    pub formats: BTreeMap<String, Format>,
    /// What later builds say besides.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// The formats of something that a build reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// The oldest.
    pub least: u32,
    /// The newest that it reads.
    pub most: u32,
    /// The one that it writes.
    pub writes: u32,
}

impl Format {
    fn reads(self, format: u32) -> bool {
        (self.least..=self.most).contains(&format)
    }
}

impl Build {
    /// This build, which is called like this.
    pub fn here(version: &str, id: &str) -> Build {
        let files = FILE_FORMATS
            .iter()
            .map(|of| (of.of, of.least, of.most))
            .chain([("catalogue", 1, CATALOG_FORMAT)]);
        let formats = files.map(|(of, least, most)| {
            let writes = most;
            (
                of.to_owned(),
                Format {
                    least,
                    most,
                    writes,
                },
            )
        });
        Build {
            version: version.to_owned(),
            id: id.to_owned(),
            between_nodes: Spoken::here(),
            formats: formats.collect(),
            unknown: UnknownFields::new(),
        }
    }

    /// What it is called.
    pub fn name(&self) -> BuildName {
        BuildName {
            version: self.version.clone(),
            id: self.id.clone(),
        }
    }

    /// Whether it is another build than this.
    pub fn is(&self, other: &Build) -> bool {
        (&self.version, &self.id) == (&other.version, &other.id)
    }

    /// Why a node of this build cannot go on as another one, among other nodes of these builds, by name; `None`: it can.
    /// A node that says nothing of its build speaks as the first did.
    pub(crate) fn refuses(
        &self,
        next: &Build,
        others: &[(String, Option<Build>)],
    ) -> Option<String> {
        for (of, now) in &self.formats {
            let Some(then) = next.formats.get(of) else {
                return Some(format!("It says nothing of the format of {of}."));
            };
            // Files of any format that is read may be in the folder.
            if then.least > now.least || !then.reads(now.writes) {
                return Some(format!(
                    "It reads {of} in formats {} to {}, and this node may have {} to {}.",
                    then.least, then.most, now.least, now.writes
                ));
            }
        }
        others.iter().find_map(|(name, build)| {
            let spoken = build.as_ref().map_or(Spoken::FIRST, |build| build.between_nodes);
            if next.between_nodes.with(spoken).is_none() {
                return Some(format!(
                    "Between nodes it speaks versions {} to {}, and node \"{name}\" {} to {}.",
                    next.between_nodes.least, next.between_nodes.most, spoken.least, spoken.most
                ));
            }
            let formats = build.iter().flat_map(|build| &build.formats);
            formats.into_iter().find_map(|(of, theirs)| {
                let Some(then) = next.formats.get(of) else {
                    return Some(format!("It says nothing of the format of {of}."));
                };
                let reads = |reader: Format, writer: Format| reader.reads(writer.writes);
                // Each of both may lead, and the other takes its log.
                (!reads(*theirs, *then) || !reads(*then, *theirs)).then(|| {
                    format!(
                        "It writes {of} in format {} and reads {} to {}; node \"{name}\" writes {} and reads {} to {}.",
                        then.writes, then.least, then.most, theirs.writes, theirs.least, theirs.most
                    )
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_log(least: u32, most: u32, writes: u32) -> Build {
        let mut build = Build::here("1.0.0", "x");
        let log = Format {
            least,
            most,
            writes,
        };
        build.formats.insert("log".to_owned(), log);
        build
    }

    fn speaking(least: u16, most: u16) -> Build {
        Build {
            between_nodes: Spoken { least, most },
            ..Build::here("1.0.0", "x")
        }
    }

    fn node(name: &str, build: &Build) -> (String, Option<Build>) {
        (name.to_owned(), Some(build.clone()))
    }

    #[test]
    fn a_format_is_read_before_it_is_written() {
        let now = with_log(2, 4, 4);
        let others = [node("b", &now), ("old".to_owned(), None)];
        for (least, most, writes, is_taken) in [
            (2, 4, 4, true),
            (2, 5, 4, true),
            (1, 5, 4, true),
            // Others could not follow it.
            (2, 5, 5, false),
            // It could not read what is there.
            (3, 5, 4, false),
            (5, 5, 5, false),
            (2, 3, 3, false),
        ] {
            let next = with_log(least, most, writes);
            let refused = now.refuses(&next, &others);
            assert_eq!(
                refused.is_none(),
                is_taken,
                "{least} {most} {writes}: {refused:?}"
            );
        }
        // Once all read it, it may be written.
        let ready = with_log(2, 5, 4);
        let next = with_log(2, 5, 5);
        assert_eq!(ready.refuses(&next, &[node("b", &ready)]), None);
        assert_eq!(ready.refuses(&next, &[node("b", &next)]), None);
        assert!(
            ready
                .refuses(&next, &[node("b", &now)])
                .unwrap()
                .contains("\"b\"")
        );
        let mut silent = now.clone();
        silent.formats.remove("checkpoint");
        assert!(now.refuses(&silent, &[]).unwrap().contains("checkpoint"));
    }

    #[test]
    fn builds_that_share_no_version_do_not_meet() {
        let now = speaking(1, 1);
        let others = [node("b", &now), ("old".to_owned(), None)];
        assert_eq!(now.refuses(&speaking(1, 2), &others), None);
        let refused = now.refuses(&speaking(2, 3), &others).unwrap();
        assert!(refused.contains("\"b\" 1 to 1"), "{refused}");
        let refused = speaking(2, 2).refuses(&speaking(2, 3), &others[1..]);
        assert!(refused.unwrap().contains("\"old\""));
    }

    #[test]
    fn what_a_later_build_says_is_read_and_kept() {
        let mut said = serde_json::to_value(Build::here("1.0.0", "x")).unwrap();
        said["colour"] = "green".into();
        let read: Build = serde_json::from_value(said.clone()).unwrap();
        assert!(read.is(&Build::here("1.0.0", "x")));
        assert!(!read.is(&Build::here("1.0.0", "y")));
        assert_eq!(serde_json::to_value(read).unwrap(), said);
    }
}
