//! Hosts that join the running job, and leave it again.
//!
//! ```text
//!   redctl spare add ─▶ add_host ─▶ fleet ─▶ joined ────▶ answer, and the root has places there
//!   root: FindHost ───▶    │          └────▶ not joined ─▶ answer, and the root is told
//!                          └ Added in the journal
//! ```

use super::Shell;
use super::launching::for_daemons;
use anyhow::Result;
use control_network::hub::LinkId;
use coordinator::WishError;
use job_root::Input;
use redrt_wire::daemon::{HostName, ToDaemon};
use spare_pool::Spare;
use std::collections::BTreeMap;

/// Reason why `redctl spare add` cannot add a host.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpareError {
    /// The job does not copy replicas.
    #[error(transparent)]
    Wish(#[from] WishError),
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
    for_user: Option<Option<u32>>,
    /// Connection that waits for the answer, while it is open.
    link: Option<LinkId>,
    for_root: bool,
    /// True once the host's daemon was told to launch processes.
    pub is_launched: bool,
}

impl Awaited {
    /// For a host whose addition the journal records.
    pub fn noted(for_user: Option<Option<u32>>) -> Self {
        Self { for_user, for_root: for_user.is_none(), ..Self::default() }
    }
}

/// Hosts that are being added, by their numbers.
pub(super) type Joining = BTreeMap<u32, Awaited>;

impl Shell<'_> {
    /// Carries out `redctl spare add`. True if that is complete already.
    pub(super) fn add_spare(
        &mut self,
        link: LinkId,
        name: &HostName,
        place_count: Option<u32>,
    ) -> Result<bool, SpareError> {
        if !self.run.job.is_cloneable {
            return Err(WishError::NotCloneable.into());
        }
        if !self.run.root.is_launched() || self.ending.code.is_some() {
            return Err(SpareError::NotRunning);
        }
        if let Some(host) = self.run.find_host(&name.name) {
            if self.coming.joining.contains_key(&host) {
                return Err(SpareError::Awaited { host: name.name.clone() });
            }
            self.open_host(host, name.user.clone(), Some(place_count.unwrap_or(1)));
            return Ok(true);
        }
        let spare = Spare { user: name.user.clone(), ..Spare::new(&name.name, place_count.unwrap_or(1)) };
        let awaited = Awaited { for_user: Some(place_count), link: Some(link), ..Awaited::default() };
        self.add_host(&spare, awaited).map_err(SpareError::Daemon)?;
        Ok(false)
    }

    /// Finds a host for the root, or begins to add it.
    pub(super) fn find_or_add(&mut self, spare: &Spare) {
        let found = self.run.find_host(&spare.name);
        if let Some(awaited) = found.and_then(|host| self.coming.joining.get_mut(&host)) {
            awaited.for_root = true;
            return;
        }
        if self.replay.is_some() {
            // The journal has the outcome.
            return self.add_noted_host();
        }
        let name = spare.name.clone();
        if let Some(host) = found {
            return self.handle(Input::HostFound { host, name, is_new: false });
        }
        if let Err(error) = self.add_host(spare, Awaited::noted(None)) {
            self.handle(Input::HostNotFound { name, why: format!("{error:#}") });
        }
    }

    fn add_host(&mut self, spare: &Spare, awaited: Awaited) -> Result<()> {
        let host = self.run.fleet.add(spare)?;
        self.ledger.added(spare, awaited.for_user);
        self.coming.joining.insert(host, awaited);
        Ok(())
    }

    fn open_host(&mut self, host: u32, user: Option<String>, count: Option<u32>) {
        let (name, cpu_count) = (self.run.fleet.name(host).to_owned(), self.run.fleet.cpu_count(host));
        self.handle(Input::SpareAdded { host, name, user, count, cpu_count });
    }

    /// Takes in an added host whose daemon has attached.
    pub(super) fn host_joined(&mut self, host: u32) {
        let Some(Awaited { for_user, link, is_launched, .. }) = self.coming.joining.remove(&host) else { return };
        if let Some(launch) = self.coming.launch.as_ref().filter(|_| !is_launched) {
            let mut launch = launch.clone();
            launch.view = self.run.root.coordinator().view().clone();
            launch.placement = for_daemons(self.run.root.placement());
            self.run.fleet.send(host, &ToDaemon::Launch(Box::new(launch)));
        }
        if let Some(link) = link {
            self.run.fleet.answer(link, String::new());
        }
        match for_user {
            Some(count) => {
                let user = self.run.fleet.plan().hosts[host as usize].name.as_ref().and_then(|name| name.user.clone());
                self.open_host(host, user, count);
            }
            None => {
                let name = self.run.fleet.name(host).to_owned();
                self.handle(Input::HostFound { host, name, is_new: true });
            }
        }
    }

    /// Answers requests for a host whose addition failed.
    pub(super) fn host_not_joined(&mut self, host: u32, why: &str) {
        let name = self.run.fleet.name(host).to_owned();
        let Some(awaited) = self.coming.joining.remove(&host) else { return };
        if let Some(link) = awaited.link {
            self.run.fleet.answer(link, format!("host {name}: {why}"));
        }
        if awaited.for_root {
            self.handle(Input::HostNotFound { name, why: why.to_owned() });
        }
    }

    /// Releases a host that the job has vacated, unless it is this one: its daemon leaves.
    pub(super) fn host_free(&mut self, host: u32) {
        if !self.run.fleet.plan().hosts[host as usize].local {
            self.handle(Input::HostDismissed(host));
            self.dismiss_host(host);
        }
    }

    /// Lets the daemon of a host leave.
    pub(super) fn dismiss_host(&mut self, host: u32) {
        match self.replay {
            Some(_) => self.run.fleet.lost_before(host),
            None => self.run.fleet.dismiss(host),
        }
    }
}
