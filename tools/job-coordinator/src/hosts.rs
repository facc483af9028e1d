//! The hosts of the job: their names by number, and which of them are part of it.
//!
//! Enters: hosts that are launched on, join, leave and are lost. All other machines look here and keep no list of their
//! own. A number goes to one host only within a life of the job, so a host that was lost keeps its name.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Serialize, Deserialize)]
struct Host {
    name: String,
    is_member: bool,
}

/// The hosts of the present life.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Hosts(BTreeMap<u32, Host>);

impl Hosts {
    /// True if the host is part of the job now.
    pub fn has(&self, host: u32) -> bool {
        self.0.get(&host).is_some_and(|host| host.is_member)
    }

    /// Number of the member with this name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.0.iter().find(|(_, host)| host.is_member && host.name == name).map(|(host, _)| *host)
    }

    /// Name of a host, also of one that was lost. Empty if the coordinator has not heard of it: it is being added.
    pub fn name(&self, host: u32) -> &str {
        self.0.get(&host).map_or("", |host| &host.name)
    }

    /// One more than the highest number.
    pub fn count(&self) -> u32 {
        self.0.keys().next_back().map_or(0, |highest| highest + 1)
    }

    /// Names by number.
    pub fn names(&self) -> Vec<String> {
        (0..self.count()).map(|host| self.name(host).to_owned()).collect()
    }

    /// Numbers of all members.
    pub fn members(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().filter(|(_, host)| host.is_member).map(|(host, _)| *host)
    }

    pub fn join(&mut self, host: u32, name: String) {
        self.0.insert(host, Host { name, is_member: true });
    }

    /// The host was lost, or is not needed any more.
    pub fn leave(&mut self, host: u32) {
        if let Some(host) = self.0.get_mut(&host) {
            host.is_member = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_was_lost_has_a_name_and_is_no_member() {
        let mut hosts = Hosts::default();
        hosts.join(0, "a".into());
        // Host 1 is being added.
        hosts.join(2, "c".into());
        assert_eq!((hosts.count(), hosts.names()), (3, ["a", "", "c"].map(String::from).into()));
        hosts.leave(0);
        assert!(!hosts.has(0) && !hosts.has(1) && hosts.has(2));
        assert_eq!((hosts.name(0), hosts.number("a"), hosts.number("c")), ("a", None, Some(2)));
        assert_eq!(hosts.members().collect::<Vec<_>>(), [2]);
    }
}
