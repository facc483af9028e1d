//! Evidence of a wrong payload. It is kept until the right one has come, and the two are compared. Where nobody knows
//! which replica is right, `redrun` gets an excerpt of this payload, and of the other one too.
//!
//! A payload that the program has already (deferred verification) is not examined.

use super::message::{Data, Message, Suspect};
use super::request::{Operation, Requests};
use quiesce::{Action, Finding, MessageId, MismatchReport};
use redrt_transport::frame::NO_CORE;
use redrt_types::{ReplicaId, Tag};
use redrt_wire::event::{Evidence, Excerpt};
use sdc_detect::{Difference, Element, Sketch, difference};
use std::borrow::Cow;

/// Only this much of a longer payload is kept.
const SUSPECT_BYTES_MAX: usize = 64 << 20;
/// Maximum number of excerpts that a process reports of payloads in open disputes.
const EXCERPT_COUNT_MAX: u32 = 32;

/// Result of comparing a suspect payload with the one that came later.
pub(super) struct Compared {
    suppliers: [ReplicaId; 2],
    tag: i32,
    difference: Difference,
    suspect: Box<Suspect>,
}

/// The processor this thread runs on, in the form of headers.
pub(super) fn core() -> u16 {
    // SAFETY: - no arguments: it returns a number that the kernel keeps for this thread.
    let core = unsafe { libc::sched_getcpu() };
    u16::try_from(core).unwrap_or(NO_CORE)
}

/// The part of a payload in question that is kept or told.
pub(super) enum Examined {
    /// None of it.
    Nothing,
    /// An excerpt for `redrun`.
    Excerpt(Excerpt),
    /// As much as can be compared with the payload that comes next.
    Suspect(Box<Suspect>),
}

/// The excerpts that a process tells.
#[derive(Default)]
pub(super) struct Excerpts {
    /// Number of excerpts told so far.
    count: u32,
}

impl Excerpts {
    /// Examines the payload of a mismatch. `payload` returns it if all of it is in memory; `element` is the type that
    /// its sender stated. `is_checked` if `redrun` asks for larger excerpts.
    pub fn examine<'a>(
        &mut self,
        report: &MismatchReport,
        element: Element,
        is_checked: bool,
        payload: impl FnOnce() -> Option<Cow<'a, [u8]>>,
    ) -> Examined {
        let is_fetched_again = report.action == Action::Refetched;
        // A payload in dispute is examined once there is a verdict.
        let is_open = report.finding == Finding::Undecidable
            && report.action != Action::Disputed
            && self.count < EXCERPT_COUNT_MAX;
        if !is_fetched_again && !is_open {
            return Examined::Nothing;
        }
        let whole_bytes_max = if is_checked { Excerpt::CHECKED_BYTES_MAX } else { Excerpt::WHOLE_BYTES_MAX };
        let Some(bytes) = payload() else { return Examined::Nothing };
        if is_open {
            self.count += 1;
            return Examined::Excerpt(match bytes.len() <= whole_bytes_max {
                true => Excerpt::Whole(bytes.into_owned()),
                false => Excerpt::Sketch(Sketch::new(&bytes)),
            });
        }
        let bytes = bytes[..bytes.len().min(SUSPECT_BYTES_MAX)].into();
        Examined::Suspect(Box::new(Suspect { view: report.view, supplier: report.supplier, element, bytes }))
    }
}

impl Message {
    /// The payload if all of it is in memory.
    pub(super) fn payload<'a>(&'a self, requests: &'a mut Requests) -> Option<Cow<'a, [u8]>> {
        match (&self.data, self.receive) {
            (Data::Bytes(bytes), _) => Some(Cow::Borrowed(bytes)),
            (Data::Placed, Some(receive)) => {
                let Operation::Receive { target, .. } = &requests.get(receive).operation else { return None };
                let length = usize::try_from(self.length).ok().filter(|length| *length > 0)?;
                if let Some(scatter) = target.scatter.as_ref().filter(|_| self.length <= target.capacity) {
                    // SAFETY: - the receive's buffer, lent until it completes, which it has not as its message is here.
                    return Some(Cow::Owned(unsafe { scatter.gather(target.start, length) }));
                }
                let start = target.contiguous(self.length)?;
                // SAFETY: - the receive's buffer, lent until it completes, which it has not as its message is here.
                //         - the payload was placed there, so `length` bytes are there.
                Some(Cow::Borrowed(unsafe { std::slice::from_raw_parts(start, length) }))
            }
            _ => None,
        }
    }

    /// Compares a payload that has come with the suspect one kept before.
    pub(super) fn compare_with_suspect(&mut self, from: ReplicaId, tag: Tag, bytes: &[u8]) -> Option<Compared> {
        let suspect = self.suspect.take()?;
        let whole = bytes.len().min(SUSPECT_BYTES_MAX);
        match difference(&suspect.bytes, &bytes[..whole], suspect.element) {
            Some(difference) => Some(Compared { suppliers: [suspect.supplier, from], tag: tag.0, difference, suspect }),
            None => {
                self.suspect = Some(suspect);
                None
            }
        }
    }
}

impl Compared {
    /// The suspect payload, to be kept for the next one: the later payload was not right either.
    pub(super) fn into_suspect(self) -> Box<Suspect> {
        self.suspect
    }

    /// The difference between the payloads of this message as it is told: the later payload was right.
    pub(super) fn into_evidence(self, receiver: ReplicaId, id: MessageId) -> Evidence {
        Evidence {
            receiver,
            sender: id.sender,
            context: id.context,
            tag: self.tag,
            sequence: id.sequence,
            suppliers: self.suppliers,
            is_decided: true,
            view: self.suspect.view,
            difference: self.difference,
        }
    }
}
