//! Before other hosts decide together with the root's own, all daemons of the job know that they are to. Pure.
//!
//! ```text
//!              three are there              all daemons know           others are voters
//!   One ───────────────────────▶ Becoming ──────────────────▶ (permit) ─────────────────▶ Several
//!    ▲                                                                                       │
//!    └────────────────────────── there is one voter again ───────────────────────────────────┘
//! ```
//! *The trap.* A daemon that takes the root's host for the only one leaves the job when it does not hear of that any
//! more. If it is lost a moment after others have become voters, one of these goes on, and lacks the daemons that have
//! not heard of it yet. So daemons are told first, and a daemon that is lost meanwhile is not waited for.

use redrt_wire::daemon::Roots;

/// What the root is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Daemons are told this.
    Tell(Roots),
    /// The member may have other voters ([`crate::Member::permit`]).
    Permit,
}

/// What daemons were told by one root. See the module.
#[derive(Debug, Default)]
pub struct Notice {
    /// Absent while this root has told nothing: one that has come back does not know what the one before has.
    told: Option<Roots>,
    is_permitted: bool,
    #[cfg(test)]
    pub(crate) mistake: Option<crate::Mistake>,
}

impl Notice {
    /// With this number of voters and members. `all_know` says whether all daemons that are there have what they were
    /// told last. Called until nothing follows.
    pub fn look(&mut self, voters: usize, members: usize, all_know: impl FnOnce() -> bool) -> Option<Step> {
        #[cfg(test)]
        let all_know = || all_know() || self.mistake == Some(crate::Mistake::PermitsEarly);
        match (self.told, voters > 1) {
            (Some(Roots::Several), true) => None,
            (_, true) => Some(self.tell(Roots::Several)),
            (Some(Roots::Several), false) => Some(self.tell(Roots::One)),
            (None | Some(Roots::One), false) => (members >= 3).then(|| self.tell(Roots::Becoming)),
            // Never back to one: what was permitted may be done at any time.
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
