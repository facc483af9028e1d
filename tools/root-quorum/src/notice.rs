//! The notice to daemons: all of the job's daemons know about other voters before there are any. Pure.
//!
//! ```text
//!              three are there              all daemons know           others are voters
//!   One ───────────────────────▶ Becoming ──────────────────▶ (permit) ─────────────────▶ Several
//!    ▲                                                                                       │
//!    └────────────────────────── there is one voter again ───────────────────────────────────┘
//! ```
//! *The trap.* A daemon that takes the root's host for the only one that can have the root leaves the job once that
//! host is silent. If the host is lost just after others became voters, one of those goes on without the daemons that
//! have not heard of it. So daemons are told first, and a daemon that is lost meanwhile is not waited for.

use redrt_wire::daemon::Roots;

/// Next action of the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Inform the daemons.
    Tell(Roots),
    /// Permit other voters ([`crate::Member::permit`]).
    Permit,
}

/// The notices of one root: see the module.
#[derive(Debug, Default)]
pub struct Notice {
    /// `None` until this root has informed daemons: after a comeback it does not know its predecessor's notices.
    told: Option<Roots>,
    is_permitted: bool,
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) mistake: Option<crate::Mistake>,
}

impl Notice {
    /// The next step for this number of voters and members. `all_know`: true if all attached daemons have acknowledged
    /// the last notice. Call it until it returns `None`.
    pub fn look(&mut self, voters: usize, members: usize, all_know: impl FnOnce() -> bool) -> Option<Step> {
        #[cfg(any(test, feature = "simulation"))]
        let all_know = || all_know() || self.mistake == Some(crate::Mistake::PermitsEarly);
        match (self.told, voters > 1) {
            (Some(Roots::Several), true) => None,
            (_, true) => Some(self.tell(Roots::Several)),
            (Some(Roots::Several), false) => Some(self.tell(Roots::One)),
            (None | Some(Roots::One), false) => (members >= 3).then(|| self.tell(Roots::Becoming)),
            // Never back to one: permitted voters may appear at any time.
            (Some(Roots::Becoming), false) => {
                let is_due = !self.is_permitted && all_know();
                self.is_permitted |= is_due;
                is_due.then_some(Step::Permit)
            }
        }
    }

    fn tell(&mut self, roots: Roots) -> Step {
        (self.told, self.is_permitted) = (Some(roots), false);
        Step::Tell(roots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_know_before_others_may_vote() {
        let mut notice = Notice::default();
        let unasked = || -> bool { unreachable!("it does not matter") };
        assert_eq!(notice.look(1, 2, unasked), None);
        assert_eq!(notice.look(1, 3, unasked), Some(Step::Tell(Roots::Becoming)));
        assert_eq!(notice.look(1, 3, || false), None);
        assert_eq!(notice.look(1, 2, || true), Some(Step::Permit));
        assert_eq!(notice.look(1, 3, unasked), None);
        assert_eq!(notice.look(3, 3, unasked), Some(Step::Tell(Roots::Several)));
        assert_eq!(notice.look(3, 3, unasked), None);
        assert_eq!(notice.look(1, 1, unasked), Some(Step::Tell(Roots::One)));
        assert_eq!(notice.look(1, 3, unasked), Some(Step::Tell(Roots::Becoming)));
        assert_eq!(notice.look(1, 3, || true), Some(Step::Permit));
    }

    #[test]
    fn a_root_that_comes_back_tells_what_it_finds() {
        assert_eq!(Notice::default().look(3, 3, || false), Some(Step::Tell(Roots::Several)));
        assert_eq!(Notice::default().look(1, 2, || true), None);
        assert_eq!(Notice::default().look(1, 3, || true), Some(Step::Tell(Roots::Becoming)));
    }
}
