//! A broker's status on the terminal.

use aerostat_broker::core::{ParticipantStatus, Status};
use comfy_table::CellAlignment;

use crate::client::table::{bytes, plain_table};

/// Characters of a bar that stands for the whole budget.
const BAR: u64 = 40;

/// The columns with text, from the left and from the right; what is between are quantities.
const QUANTITIES: std::ops::Range<usize> = 3..8;

/// A status for people.
pub(super) fn status(status: &Status) -> String {
    let mut text = format!(
        "{} for all, {} in reserve, {} free, policy {}{}\n",
        bytes(status.budget),
        bytes(status.reserve),
        bytes(status.free),
        status.policy,
        if status.is_dry_run { " (dry run)" } else { "" },
    );
    if status.held_back > 0 {
        let held_back = bytes(status.held_back);
        text += &format!("{held_back} are held back: tasks of the machine wait for memory\n");
    }
    for name in &status.waiting {
        text += &format!("{name} waits for its floor\n");
    }
    if status.participants.is_empty() {
        return text + "no participants";
    }
    let headings = [
        "participant",
        "state",
        "",
        "granted",
        "kernel",
        "wanted",
        "floor",
        "ceiling",
        "why",
    ];
    let rows = status
        .participants
        .iter()
        .map(|one| row(status.budget, one));
    let mut table = plain_table(headings, rows);
    for column in table
        .column_iter_mut()
        .skip(QUANTITIES.start)
        .take(QUANTITIES.len())
    {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text + &table.to_string()
}

fn row(budget: u64, one: &ParticipantStatus) -> [String; 9] {
    let optional = |value: Option<u64>| value.map_or("–".to_owned(), bytes);
    let granted = match one.target < one.granted {
        true => format!("{} → {}", bytes(one.granted), bytes(one.target)),
        false => bytes(one.granted),
    };
    let name = match one.kind.is_empty() {
        true => one.name.clone(),
        false => format!("{} ({})", one.name, one.kind),
    };
    let state = match one.pinned {
        Some(_) => format!("{}, pinned", one.state),
        None => one.state.clone(),
    };
    [
        name,
        state,
        bar(budget, one),
        granted,
        optional(one.account),
        optional(one.wanted),
        bytes(one.floor),
        bytes(one.ceiling),
        one.why.clone(),
    ]
}

/// What the kernel counts, and what is granted beyond that.
fn bar(budget: u64, one: &ParticipantStatus) -> String {
    let cells = |bytes: u64| {
        let cells = u128::from(bytes) * u128::from(BAR) / u128::from(budget.max(1));
        usize::try_from(cells.min(u128::from(BAR))).unwrap_or(0)
    };
    let used = cells(one.account.unwrap_or(0));
    let granted = cells(one.granted);
    "█".repeat(used) + &"░".repeat(granted.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use aerostat_broker::policy::Policy;

    use super::*;

    #[test]
    fn a_status_says_who_has_what_and_why() {
        let one = ParticipantStatus {
            name: "shop".to_owned(),
            kind: "aerostat".to_owned(),
            pid: Some(7),
            state: "giving".to_owned(),
            floor: 256 << 20,
            ceiling: 4 << 30,
            granted: 1 << 30,
            target: 512 << 20,
            account: Some(768 << 20),
            used: None,
            wanted: None,
            pinned: None,
            why: "its lack costs least".to_owned(),
        };
        let mut shown = Status {
            budget: 2 << 30,
            reserve: 64 << 20,
            free: 1 << 30,
            in_transit: 0,
            held_back: 0,
            policy: Policy::Benefit,
            is_dry_run: true,
            participants: vec![one],
            waiting: vec!["late".to_owned()],
        };
        let text = status(&shown);
        for part in [
            "2.0 GiB for all, 64.0 MiB in reserve, 1.0 GiB free, policy benefit (dry run)",
            "late waits for its floor",
            "shop (aerostat)",
            "1.0 GiB → 512.0 MiB",
            "███████████████░░░░░ ",
            "its lack costs least",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        shown.participants.clear();
        assert!(status(&shown).ends_with("no participants"));
    }
}
