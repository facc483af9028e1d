//! The notice to daemons: all of the job's daemons know about other voters before there are any. Pure.
//!
//! ```text
//!              three are there              all daemons know           others are voters
//!   One ───────────────────────▶ Becoming ──────────────────▶ (permit) ─────────────────▶ Several
//!    ▲                                                                                       │
//!    └────────────────────────── there is one voter again ───────────────────────────────────┘
//! ```
//! *The trap.* A daemon that takes the coordinator's host for the only one that can have the coordinator leaves the job
//! once that host is silent. If the host is lost just after others became voters, one of those goes on without the
//! daemons that have not heard of it. So daemons are told first, and a daemon that is lost meanwhile is not waited for.

use redrt_wire::daemon::Coordinators;

/// Next action of the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Inform the daemons.
    Send(Coordinators),
    /// Permit other voters ([`crate::Peer::permit`]).
    Permit,
}

/// The notices of one coordinator: see the module.
#[derive(Debug, Default)]
pub struct Notice {
    /// `None` until this coordinator has informed daemons: after a failover it does not know its predecessor's notices.
    told: Option<Coordinators>,
    is_permitted: bool,
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) mistake: Option<crate::Mistake>,
}

impl Notice {
    /// The next step for this number of voters and peers. `all_know`: true if all attached daemons have acknowledged
    /// the last notice. Call it until it returns `None`.
    pub fn poll(&mut self, voters: usize, peers: usize, all_know: impl FnOnce() -> bool) -> Option<Step> {
        #[cfg(any(test, feature = "simulation"))]
        let all_know = || all_know() || self.mistake == Some(crate::Mistake::PermitsEarly);
        match (self.told, voters > 1) {
            (Some(Coordinators::Several), true) => None,
            (_, true) => Some(self.announce(Coordinators::Several)),
            (Some(Coordinators::Several), false) => Some(self.announce(Coordinators::One)),
            (None | Some(Coordinators::One), false) => (peers >= 3).then(|| self.announce(Coordinators::Becoming)),
            // Never back to one: permitted voters may appear at any time.
            (Some(Coordinators::Becoming), false) => {
                let is_due = !self.is_permitted && all_know();
                self.is_permitted |= is_due;
                is_due.then_some(Step::Permit)
            }
        }
    }

    fn announce(&mut self, coordinators: Coordinators) -> Step {
        (self.told, self.is_permitted) = (Some(coordinators), false);
        Step::Send(coordinators)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_know_before_others_may_vote() {
        let mut notice = Notice::default();
        let unasked = || -> bool { unreachable!("it does not matter") };
        assert_eq!(notice.poll(1, 2, unasked), None);
        assert_eq!(notice.poll(1, 3, unasked), Some(Step::Send(Coordinators::Becoming)));
        assert_eq!(notice.poll(1, 3, || false), None);
        assert_eq!(notice.poll(1, 2, || true), Some(Step::Permit));
        assert_eq!(notice.poll(1, 3, unasked), None);
        assert_eq!(notice.poll(3, 3, unasked), Some(Step::Send(Coordinators::Several)));
        assert_eq!(notice.poll(3, 3, unasked), None);
        assert_eq!(notice.poll(1, 1, unasked), Some(Step::Send(Coordinators::One)));
        assert_eq!(notice.poll(1, 3, unasked), Some(Step::Send(Coordinators::Becoming)));
        assert_eq!(notice.poll(1, 3, || true), Some(Step::Permit));
    }

    #[test]
    fn a_coordinator_that_comes_back_tells_what_it_finds() {
        assert_eq!(Notice::default().poll(3, 3, || false), Some(Step::Send(Coordinators::Several)));
        assert_eq!(Notice::default().poll(1, 2, || true), None);
        assert_eq!(Notice::default().poll(1, 3, || true), Some(Step::Send(Coordinators::Becoming)));
    }
}
