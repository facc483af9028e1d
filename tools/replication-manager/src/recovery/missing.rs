//! Missing replicas: the places that are to be filled, and the requests for places on hosts.

use super::Purpose;
use crate::Output;
use crate::effect::Effects;
use redrt_types::{ReplicaId, VirtualRank};
use serde::{Deserialize, Serialize};
use spare_pool::PlaceOrder;
use std::collections::BTreeMap;
use std::time::Duration;

/// Rest after a pool took a place back. It keeps the replication manager from asking a failing pool without pause.
const REST_AFTER_LOSS: Duration = Duration::from_secs(1);

/// The state of the request for a place on a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum PlaceRequest {
    None,
    /// A pool was asked, and has not granted a place yet.
    Asked {
        number: u64,
    },
    Granted {
        number: u64,
        host: u32,
    },
}

impl PlaceRequest {
    /// Gives back what was asked for or granted.
    pub fn give_back(self, out: &mut Effects) {
        match self {
            Self::None => {}
            Self::Asked { number } => out.output(Output::Place(PlaceOrder::Withdraw(number))),
            Self::Granted { number, .. } => out.output(Output::Place(PlaceOrder::Release(number))),
        }
    }

    fn is_on(&self, number: u32) -> bool {
        matches!(self, Self::Granted { host, .. } if *host == number)
    }
}

/// A place of a rank that is to be filled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Missing {
    pub purpose: Purpose,
    /// Time of the loss, or of the request.
    pub since: Duration,
    pub not_before: Duration,
    pub failure_count: u32,
    /// The user was told that there is no spare.
    pub was_told: bool,
    /// The latest attempt failed because a host had too little memory.
    pub is_short: bool,
    /// Number of the only host that will do. None if any will.
    pub only: Option<u32>,
    /// The replica that must be copied. None if any sibling will do.
    pub source: Option<ReplicaId>,
    pub place_request: PlaceRequest,
}

impl Missing {
    /// A need that arises now.
    pub fn new(now: Duration, purpose: Purpose) -> Self {
        Self {
            purpose,
            since: now,
            not_before: now,
            failure_count: 0,
            was_told: false,
            is_short: false,
            only: None,
            source: None,
            place_request: PlaceRequest::None,
        }
    }

    /// The mover has died before it had a successor, so its copy makes good a loss.
    pub fn become_loss(&mut self, now: Duration) {
        (self.purpose, self.since, self.only) = (Purpose::Loss, now, None);
    }
}

/// The places that are to be filled and for which no clone is under way; and the replicas in places of a pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Needs {
    missing: BTreeMap<ReplicaId, Missing>,
    /// Replicas in places of a pool, with the numbers of the requests.
    places: BTreeMap<ReplicaId, u64>,
}

impl Needs {
    pub fn all(&self) -> impl Iterator<Item = (ReplicaId, &Missing)> {
        self.missing.iter().map(|(place, missing)| (*place, missing))
    }

    pub fn get(&self, place: ReplicaId) -> Option<&Missing> {
        self.missing.get(&place)
    }

    pub fn contains(&self, place: ReplicaId) -> bool {
        self.missing.contains_key(&place)
    }

    /// Returns true if a copy of this replica is wanted.
    pub fn wants_copy_of(&self, source: ReplicaId) -> bool {
        self.missing.values().any(|missing| missing.source == Some(source))
    }

    /// The places for copies that are to judge, with their sources.
    pub fn to_judge(&self) -> impl Iterator<Item = (ReplicaId, Option<ReplicaId>)> {
        let to_judge = self.all().filter(|(_, missing)| missing.purpose == Purpose::Arbitration);
        to_judge.map(|(place, missing)| (place, missing.source))
    }

    /// The end of the next rest.
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        self.missing.values().map(|missing| missing.not_before).filter(|at| *at > now).min()
    }

    pub fn add(&mut self, place: ReplicaId, missing: Missing) {
        self.missing.insert(place, missing);
    }

    pub fn take(&mut self, place: ReplicaId) -> Option<Missing> {
        self.missing.remove(&place)
    }

    /// Gives up all needs.
    pub fn clear(&mut self, out: &mut Effects) {
        std::mem::take(&mut self.missing).into_values().for_each(|missing| missing.place_request.give_back(out));
    }

    /// Records that a pool was asked.
    pub fn ask(&mut self, place: ReplicaId, number: u64) {
        self.missing.get_mut(&place).expect("it is due").place_request = PlaceRequest::Asked { number };
    }

    /// The need for which a pool was asked under this number.
    pub fn asked(&mut self, number: u64) -> Option<(ReplicaId, &mut Missing)> {
        let found =
            self.missing.iter_mut().find(|(_, missing)| missing.place_request == PlaceRequest::Asked { number });
        found.map(|(place, missing)| (*place, missing))
    }

    /// A pool has taken the place with this number back. Returns true if no copy was there yet.
    pub fn lose_place(&mut self, now: Duration, number: u64) -> bool {
        let has_it = |missing: &&mut Missing| match missing.place_request {
            PlaceRequest::Asked { number: other } | PlaceRequest::Granted { number: other, .. } => other == number,
            PlaceRequest::None => false,
        };
        let found = self.missing.values_mut().find(has_it);
        found
            .map(|missing| (missing.place_request, missing.not_before) = (PlaceRequest::None, now + REST_AFTER_LOSS))
            .is_some()
    }

    /// A host is lost, with the places that were granted there.
    pub fn lose_host(&mut self, number: u32, host_of: impl Fn(ReplicaId) -> Option<u32>) {
        self.missing
            .values_mut()
            .filter(|it| it.place_request.is_on(number))
            .for_each(|it| it.place_request = PlaceRequest::None);
        self.places.retain(|replica, _| host_of(*replica) != Some(number));
    }

    /// Gives back the places that were granted on a host.
    pub fn give_back_on(&mut self, host: u32, out: &mut Effects) {
        self.give_back_if(|_, missing| missing.place_request.is_on(host), out);
    }

    /// Gives back the places of the needs that `which` selects.
    pub fn give_back_if(&mut self, which: impl Fn(ReplicaId, &Missing) -> bool, out: &mut Effects) {
        let selected = self.missing.iter_mut().filter(|(place, missing)| which(**place, missing));
        selected
            .for_each(|(_, missing)| std::mem::replace(&mut missing.place_request, PlaceRequest::None).give_back(out));
    }

    /// A copy takes a place that a pool has granted under this number.
    pub fn settle(&mut self, replica: ReplicaId, number: u64) {
        self.places.insert(replica, number);
    }

    /// A replica has left its place. Returns the number of the place, if a pool had granted it.
    pub fn leave_place(&mut self, replica: ReplicaId) -> Option<u64> {
        self.places.remove(&replica)
    }

    /// The replica in the place with this number.
    pub fn replica_in(&self, number: u64) -> Option<ReplicaId> {
        self.places.iter().find(|(_, other)| **other == number).map(|(replica, _)| *replica)
    }

    /// Makes good a loss by the copy that a mover of this rank was waiting for. Returns false if there is none.
    pub fn make_loss_of_move(&mut self, now: Duration, rank: VirtualRank) -> bool {
        let is_its =
            |(place, missing): &(&ReplicaId, &mut Missing)| place.rank == rank && missing.purpose == Purpose::Move;
        self.missing.iter_mut().find(is_its).map(|(_, missing)| missing.become_loss(now)).is_some()
    }
}
