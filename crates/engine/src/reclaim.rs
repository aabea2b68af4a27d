//! Memory that a tenant, or the node, gives back before it refuses anybody.
//!
//! ```text
//!  budget of a tenant is full   its cached plans, oldest first                          (PlanCache)
//!                               then values of its frozen segments (aerostat_storage's Evictor)
//!  the node's is full           cached plans of all tenants, the largest caches first;
//!                               then values of all, of those first that have the most in memory
//! ```
//!
//! Statements then plan again, which costs milliseconds, or read values from the disk; nothing that
//! anybody was promised is taken.
//! Free heap is given back by the node's own threads (`aerostat_memory::HeapKeeper`), which are told
//! of a lower target, too.

use std::{cmp::Reverse, sync::Arc};

use aerostat_memory::{MemoryClass, Reclaim};

use crate::{engine::Engine, tenant::Tenant};

impl Reclaim for Engine {
    fn reclaim(&self, bytes: u64) -> u64 {
        let Some(mut tenants) = self.try_tenants() else {
            return 0;
        };
        let mut given = 0;
        // Operators that may spill are refused often.
        if self.governor().root().used_for(MemoryClass::CachedPlans) > 0 {
            tenants.sort_by_key(|tenant| Reverse(tenant.plans().bytes()));
            for tenant in &tenants {
                if given >= bytes {
                    return given;
                }
                given += tenant.plans().reclaim(bytes - given);
            }
        }
        let frozen = |tenant: &Arc<Tenant>| tenant.store().budget().used_for(MemoryClass::Frozen);
        tenants.sort_by_key(|tenant| Reverse(frozen(tenant)));
        for tenant in &tenants {
            if given >= bytes {
                break;
            }
            given += tenant.store().evict(bytes - given);
        }
        given
    }
}
