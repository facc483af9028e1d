//! The hosts of a job, and which of them may get copies.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Host {
    name: String,
    is_alive: bool,
    /// True if it is to become free, and gets no more copies.
    is_closed: bool,
    /// True if the user was told that it has become free.
    is_told_free: bool,
    /// True if memory ran out there. A copy must then find more than it needs now.
    is_short: bool,
}

impl Host {
    fn new(name: String) -> Self {
        Self { name, is_alive: true, is_closed: false, is_told_free: false, is_short: false }
    }

    fn is_open(&self) -> bool {
        self.is_alive && !self.is_closed
    }
}

/// Hosts by number; see the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hosts(BTreeMap<u32, Host>);

impl Hosts {
    pub fn new(names: Vec<String>) -> Self {
        Self((0..).zip(names.into_iter().map(Host::new)).collect())
    }

    pub fn name(&self, number: u32) -> &str {
        &self.0[&number].name
    }

    pub fn is_alive(&self, number: u32) -> bool {
        self.0[&number].is_alive
    }

    pub fn is_closed(&self, number: u32) -> bool {
        self.0[&number].is_closed
    }

    /// Returns true if memory ran out there.
    pub fn is_short(&self, number: u32) -> bool {
        self.0[&number].is_short
    }

    /// Returns true if copies may be put there.
    pub fn is_open(&self, number: u32) -> bool {
        self.0.get(&number).is_some_and(Host::is_open)
    }

    /// Returns true if copies may be put on another host than this one.
    pub fn has_open_besides(&self, number: u32) -> bool {
        self.0.iter().any(|(other, host)| *other != number && host.is_open())
    }

    /// The hosts where memory ran out.
    pub fn short_names(&self) -> impl Iterator<Item = String> {
        self.0.values().filter(|host| host.is_short).map(|host| host.name.clone())
    }

    /// Allows copies on this host: it is new, or it was closed before.
    pub fn open(&mut self, number: u32, name: String) {
        self.0.insert(number, Host::new(name));
    }

    /// A host gets no more copies. Returns its name.
    pub fn close(&mut self, number: u32) -> String {
        if let Some(host) = self.0.get_mut(&number) {
            host.is_closed = true;
        }
        self.name(number).to_owned()
    }

    /// A host is gone.
    pub fn dismiss(&mut self, number: u32) {
        if let Some(host) = self.0.get_mut(&number) {
            host.is_alive = false;
        }
    }

    /// A host is lost. Returns its number. None if it was gone before.
    pub fn lose(&mut self, name: &str) -> Option<u32> {
        let (number, host) = self.0.iter_mut().find(|(_, host)| host.name == name && host.is_alive)?;
        host.is_alive = false;
        Some(*number)
    }

    /// Marks a host where memory ran out.
    pub fn memory_ran_out(&mut self, number: u32) {
        if let Some(host) = self.0.get_mut(&number) {
            host.is_short = true;
        }
    }

    /// Returns the hosts that were to become free and are, each once.
    pub fn newly_free(&mut self, is_empty: impl Fn(u32) -> bool) -> Vec<(u32, String)> {
        let may_be_told = |host: &Host| host.is_closed && host.is_alive && !host.is_told_free;
        let free = self.0.iter_mut().filter(|(number, host)| may_be_told(host) && is_empty(**number));
        free.map(|(number, host)| {
            host.is_told_free = true;
            (*number, host.name.clone())
        })
        .collect()
    }
}
