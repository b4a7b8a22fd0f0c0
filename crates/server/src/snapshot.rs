//! What a server answers from at one moment. Each part is immutable and replaced independently.

use crate::sites::Sites;
use sanderling_dns::ZoneMap;
use std::sync::Arc;

/// Sites and zones. A clone shares them.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The web sites.
    pub sites: Arc<Sites>,
    /// The zones.
    pub zones: Arc<ZoneMap>,
}

impl Snapshot {
    /// A snapshot of these parts.
    pub fn new(sites: Sites, zones: ZoneMap) -> Snapshot {
        Snapshot { sites: Arc::new(sites), zones: Arc::new(zones) }
    }
}
