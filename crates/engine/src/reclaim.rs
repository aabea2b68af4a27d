//! Memory that a tenant, or the node, gives back before it refuses anybody.
//!
//! ```text
//!  budget of a tenant is full   its cached plans, oldest first                (PlanCache)
//!  the node's is full           cached plans of all tenants, the largest caches first
//! ```
//!
//! Statements then plan again, which costs milliseconds; nothing that anybody was promised is taken.
//! Free heap is given back by the node's own threads (`aerostat_memory::HeapKeeper`), which are told
//! of a lower target, too.

use std::cmp::Reverse;

use aerostat_memory::{MemoryClass, Reclaim};

use crate::engine::Engine;

impl Reclaim for Engine {
    fn reclaim(&self, bytes: u64) -> u64 {
        // Operators that may spill are refused often.
        if self.governor().root().used_for(MemoryClass::CachedPlans) == 0 {
            return 0;
        }
        let Some(mut tenants) = self.try_tenants() else {
            return 0;
        };
        tenants.sort_by_key(|tenant| Reverse(tenant.plans().bytes()));
        let mut given = 0;
        for tenant in tenants {
            if given >= bytes {
                break;
            }
            given += tenant.plans().reclaim(bytes - given);
        }
        given
    }
}
