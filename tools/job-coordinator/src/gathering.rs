//! Pieces of a checkpoint that hosts fetch from each other before processes are loaded.
//!
//! ```text
//!  launch ─▶ Serve, to all hosts ─▶ each listens, or fails, or is lost ─▶ Fetch, to all, with the addresses
//! ```
//! Enters: the launch, reports of daemons, losses of hosts. Leaves: orders for daemons. Which parts a host needs is in
//! the launch. A host that is lost later takes pieces with it: hosts that fetch take others.

use redrt_wire::checkpoint::{Generation, PartOrder, PartStep};
use redrt_wire::daemon::ToDaemon;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

/// Hosts that are to give pieces: see the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Gathering {
    generation: Generation,
    hosts: BTreeSet<u32>,
    awaited: BTreeSet<u32>,
    servers: Vec<(u32, SocketAddr)>,
}

/// Orders for daemons, with their hosts.
type Orders = Vec<(u32, ToDaemon)>;

impl Gathering {
    /// Has all hosts listen. `job`: the directory of the job.
    pub fn begin(generation: Generation, hosts: BTreeSet<u32>, job: &Path) -> (Self, Orders) {
        let serve = |host: &u32| (*host, order(generation, *host, PartOrder::Serve { job: job.to_owned() }));
        let orders = hosts.iter().map(serve).collect();
        (Self { generation, awaited: hosts.clone(), hosts, servers: Vec::new() }, orders)
    }

    /// Handles a daemon's report. `None` if it is about another checkpoint.
    pub fn handle(&mut self, host: u32, generation: Generation, step: &PartStep) -> Option<Orders> {
        if generation != self.generation || !self.hosts.contains(&host) {
            return None;
        }
        if let PartStep::Listening(address) = step {
            self.servers.push((host, *address));
        }
        Some(self.answered(host))
    }

    /// Handles a lost host.
    pub fn lose(&mut self, host: u32) -> Orders {
        self.hosts.remove(&host);
        self.servers.retain(|(server, _)| *server != host);
        self.answered(host)
    }

    /// Orders once no answer is awaited any more.
    fn answered(&mut self, host: u32) -> Orders {
        if !self.awaited.remove(&host) || !self.awaited.is_empty() {
            return Vec::new();
        }
        let fetch =
            |host: &u32| (*host, order(self.generation, *host, PartOrder::Fetch { servers: self.servers.clone() }));
        self.hosts.iter().map(fetch).collect()
    }
}

fn order(generation: Generation, source: u32, order: PartOrder) -> ToDaemon {
    ToDaemon::Part { generation, source, order }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_wire::no_image::NoImage;

    fn parts(orders: Orders) -> Vec<(u32, PartOrder)> {
        let part = |message| match message {
            ToDaemon::Part { order, .. } => order,
            other => panic!("{other:?} is not about a part"),
        };
        orders.into_iter().map(|(host, message)| (host, part(message))).collect()
    }

    #[test]
    fn all_fetch_when_all_that_live_have_answered() {
        let (mut gathering, orders) = Gathering::begin(Generation(3), (0..4).collect(), Path::new("/j"));
        assert_eq!(parts(orders).len(), 4);
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let listening = |port| PartStep::Listening(address(port));
        assert!(gathering.handle(0, Generation(4), &listening(1)).is_none());
        let mut answer = |host, step| parts(gathering.handle(host, Generation(3), &step).expect("it is awaited"));
        assert_eq!(answer(0, listening(1)), []);
        assert_eq!(answer(1, listening(2)), []);
        assert_eq!(answer(2, PartStep::Failed(NoImage::NoJob)), []);
        assert_eq!(parts(gathering.lose(1)), []);
        let expected = |host| (host, PartOrder::Fetch { servers: vec![(0, address(1))] });
        assert_eq!(parts(gathering.lose(3)), [0, 2].map(expected));
        assert_eq!(parts(gathering.lose(2)), []);
    }
}
