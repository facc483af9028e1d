//! Hosts that join the running job, and leave it again.
//!
//! ```text
//!   redctl spare add ─▶ add_host ─▶ fleet ─▶ joined ────▶ answer, and the coordinator has places there
//!   coordinator: FindHost ─▶ │        └────▶ not joined ─▶ answer, and the coordinator is told
//!                          └ Added in the journal
//! ```

use super::spares::SitePool;
use control_network::hub::LinkId;
use redrt_wire::daemon::Launch;
use replication_manager::ChangeRequestError;
use std::collections::BTreeMap;

/// Reason why `redctl spare add` cannot add a host.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpareError {
    /// The job does not copy replicas.
    #[error(transparent)]
    ChangeRequest(#[from] ChangeRequestError),
    /// The job is starting or ending.
    #[error("the job is not running")]
    NotRunning,
    #[error("host {host} is being added already")]
    Awaited { host: String },
    /// The host's daemon could not be started.
    #[error("{0:#}")]
    Daemon(anyhow::Error),
}

/// The requests for which a host is being added.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Awaited {
    /// The number of places that `redctl spare add` named (inner), if the request came from there (outer).
    pub for_user: Option<Option<u32>>,
    /// Connection that waits for the answer, while it is open.
    pub link: Option<LinkId>,
    pub for_coordinator: bool,
    /// True once the host's daemon was told to launch processes.
    pub is_launched: bool,
}

impl Awaited {
    /// For a host whose addition the journal records.
    pub fn noted(for_user: Option<Option<u32>>) -> Self {
        Self { for_user, for_coordinator: for_user.is_none(), ..Self::default() }
    }
}

/// Hosts that are being added, by their numbers.
pub(super) type Joining = BTreeMap<u32, Awaited>;

/// Hosts that the job gets while it runs.
pub(super) struct Coming {
    pub joining: Joining,
    pub site: SitePool,
    /// The order to launch, for hosts that join later.
    pub launch: Option<Launch>,
}

impl Coming {
    /// Forgets the hosts of a life that ends.
    pub fn begin_life(&mut self, site: SitePool) {
        self.joining.clear();
        self.site = site;
    }
    /// Name of this host, as processes were told. Empty before the launch.
    pub fn host_name(&self) -> &str {
        self.launch.as_ref().map_or("", |launch| &launch.host_name)
    }
}
