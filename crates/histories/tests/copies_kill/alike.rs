//! Whether two nodes have the same: definitions, and an md5 over the rows of each table.

use std::time::{Duration, Instant};

use crate::client::Session;
use crate::definitions::objects;

/// How long a copy may take to have what its leader has, once nobody writes.
const CATCH_UP_MAX: Duration = Duration::from_secs(30);

/// What a node has, in lines that can be compared.
///
/// # Errors
/// It does not say: two nodes that fail alike are not the same for that.
async fn digests(session: &Session) -> Result<Vec<String>, String> {
    let mut lines = objects(session).await?;
    let tables: Vec<String> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("table ").map(str::to_owned))
        .collect();
    for table in tables {
        let prefix = format!("column {table}.");
        let columns = lines.iter().filter_map(|line| line.strip_prefix(&*prefix));
        let texts: Vec<String> = columns
            .map(|column| format!("coalesce({column}::text, '~')"))
            .collect();
        let row = texts.join(" || '|' || ");
        let sql = format!(
            "SELECT count(*), md5(coalesce(string_agg(r, ';' ORDER BY r), '')) FROM (SELECT {row} AS r FROM {table}) AS t"
        );
        let rows = session.rows(&sql).await;
        let rows = rows.map_err(|failure| format!("{table}: {failure}"))?;
        lines.push(format!("{table}: {} rows, md5 {}", rows[0][0], rows[0][1]));
    }
    Ok(lines)
}

/// Waits until the copy has what the leader has; what differs if it never does.
pub(crate) async fn wait_until_alike(leader: &Session, copy: &Session) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let (ours, theirs) = (digests(leader).await, digests(copy).await);
        for failure in [&ours, &theirs]
            .into_iter()
            .filter_map(|said| said.as_ref().err())
        {
            eprintln!("a node does not say what it has: {failure}");
        }
        if ours.is_ok() && ours == theirs {
            return Ok(());
        }
        let (ours, theirs) = (ours.unwrap_or_default(), theirs.unwrap_or_default());
        if began.elapsed() > CATCH_UP_MAX {
            let mut text = format!("after {CATCH_UP_MAX:?} without load the copy differs:");
            for line in ours.iter().filter(|line| !theirs.contains(line)) {
                text += &format!("\n  leader: {line}");
            }
            for line in theirs.iter().filter(|line| !ours.contains(line)) {
                text += &format!("\n  copy:   {line}");
            }
            return Err(text + &differing_lists(leader, copy).await);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The first lists that differ.
async fn differing_lists(leader: &Session, copy: &Session) -> String {
    let (Ok(ours), Ok(theirs)) = (leader.read_all().await, copy.read_all().await) else {
        return String::new();
    };
    let mut text = String::new();
    for (key, list) in ours.iter().filter(|list| !theirs.contains(list)).take(5) {
        let other = theirs.iter().find(|(other, _)| other == key);
        let other = other.map(|(_, list)| list.as_slice()).unwrap_or_default();
        text += &format!("\n  list {key}: leader {list:?}\n          copy   {other:?}");
    }
    for (key, list) in theirs
        .iter()
        .filter(|(key, _)| ours.iter().all(|(other, _)| other != key))
    {
        text += &format!("\n  list {key}: only the copy has it, {list:?}");
    }
    text
}
