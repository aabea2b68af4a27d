//! Memory of other nodes: touched first by a thread of theirs, read by one of ours.

use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::buffer::{Buffer, Pages};
use super::chase::{Chain, STEP_BYTES};
use super::{SEED, WINDOWS, cores, stream, windows};
use crate::CalibrateError;
use crate::claims;
use crate::curve::{low_quantile, rounded};

/// Beyond what caches hold, and little enough for many pairs.
const NODE_BYTES: usize = 128 << 20;

/// Loads of a window.
const LOADS: usize = 1 << 14;

/// Time for streaming a node's memory.
const STREAM: Duration = Duration::from_millis(50);

/// What the cores of one node see of another's memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumaPair {
    /// The node whose core reads.
    pub from: usize,
    /// The node whose memory is read.
    pub to: usize,
    /// ns of a load.
    pub latency_ns: f64,
    /// Bytes per second of one thread, in order.
    pub sequential_bytes_per_s: f64,
}

/// All pairs of nodes with cores of ours; none where there is one node.
///
/// # Errors
/// [`CalibrateError`] when there is no memory, or a core cannot be used.
pub(crate) fn pairs(allowed: &[usize]) -> Result<Vec<NumaPair>, CalibrateError> {
    let nodes: Vec<(usize, usize)> = claims::nodes()
        .into_iter()
        .filter_map(|(node, of_node)| {
            let core = of_node.into_iter().find(|core| allowed.contains(core))?;
            Some((node, core))
        })
        .collect();
    let mut pairs = Vec::new();
    if nodes.len() < 2 {
        return Ok(pairs);
    }
    for &(to, owner) in &nodes {
        pin(owner)?;
        let mut buffer = Buffer::new(NODE_BYTES, Pages::Huge)?;
        let mut random = Pcg64Mcg::seed_from_u64(SEED);
        let mut chain = Chain::sparse(buffer.words_mut(), &mut random);
        for &(from, core) in &nodes {
            pin(core)?;
            let values = (0..WINDOWS).filter_map(|_| windows(buffer.words(), &mut chain, LOADS));
            let latency_ns = low_quantile(&mut values.collect());
            let line_ns = stream::sequential_ns(buffer.words(), STREAM).value;
            if let (Some(latency_ns), Some(line_ns)) = (latency_ns, line_ns) {
                pairs.push(NumaPair {
                    from,
                    to,
                    latency_ns,
                    sequential_bytes_per_s: rounded(STEP_BYTES as f64 / line_ns * 1e9),
                });
            }
        }
    }
    Ok(pairs)
}

fn pin(core: usize) -> Result<(), CalibrateError> {
    cores::pin(&[core]).map_err(|source| CalibrateError::Core { core, source })
}
