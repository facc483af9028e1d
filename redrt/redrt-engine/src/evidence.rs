//! Evidence of a wrong payload. It is kept until the right one has come, and the two are compared. Where nobody knows
//! which replica is right, `redrun` gets an excerpt of this payload, and of the other one too.
//!
//! A payload that the program has already (deferred verification) is not examined.

use super::Engine;
use super::message::{Data, Suspect};
use super::request::Operation;
use quiesce::{Action, Finding, MessageId, MismatchReport};
use redrt_transport::frame::NO_CORE;
use redrt_types::{ReplicaId, Tag};
use redrt_wire::control::FromAgent;
use redrt_wire::event::{Event, Evidence, Excerpt};
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

impl Engine {
    /// Keeps the payload of a mismatch for a later comparison, or makes an excerpt of it for `redrun`. Also returns the
    /// element type that the sender stated.
    pub(super) fn look_at(&mut self, report: &MismatchReport) -> (Element, Option<Excerpt>) {
        let Some(key) = self.record_of(report.message) else {
            return (Element::Unknown, None);
        };
        let element = self.messages[key].element;
        let is_fetched_again = report.action == Action::Refetched;
        // A payload in dispute is examined once there is a verdict.
        let is_open = report.finding == Finding::Undecidable
            && report.action != Action::Disputed
            && self.excerpt_count < EXCERPT_COUNT_MAX;
        if !is_fetched_again && !is_open {
            return (element, None);
        }
        let whole_bytes_max = match self.traces {
            Some(_) => Excerpt::CHECKED_BYTES_MAX,
            None => Excerpt::WHOLE_BYTES_MAX,
        };
        let Some(bytes) = self.payload_of(key) else { return (element, None) };
        if is_open {
            let excerpt = match bytes.len() <= whole_bytes_max {
                true => Excerpt::Whole(bytes.into_owned()),
                false => Excerpt::Sketch(Sketch::new(&bytes)),
            };
            self.excerpt_count += 1;
            return (element, Some(excerpt));
        }
        let bytes = bytes[..bytes.len().min(SUSPECT_BYTES_MAX)].into();
        // Several replicas may be reported for one payload; the first report keeps it.
        let suspect = || Box::new(Suspect { view: report.view, supplier: report.supplier, element, bytes });
        self.messages[key].suspect.get_or_insert_with(suspect);
        (element, None)
    }

    /// The payload of a message if all of it is in memory.
    pub(super) fn payload_of(&mut self, key: usize) -> Option<Cow<'_, [u8]>> {
        let message = &self.messages[key];
        match (&message.data, message.receive) {
            (Data::Bytes(bytes), _) => Some(Cow::Borrowed(bytes)),
            (Data::Placed, Some(receive)) => {
                let Operation::Receive { target, .. } = &self.requests.get(receive).operation else { return None };
                let length = usize::try_from(message.length).ok().filter(|length| *length > 0)?;
                if let Some(scatter) = target.scatter.as_ref().filter(|_| message.length <= target.capacity) {
                    // SAFETY: - the receive's buffer, lent until it completes, which it has not as its message is here.
                    return Some(Cow::Owned(unsafe { scatter.gather(target.start, length) }));
                }
                let start = target.contiguous(message.length)?;
                // SAFETY: - the receive's buffer, lent until it completes, which it has not as its message is here.
                //         - the payload was placed there, so `length` bytes are there.
                Some(Cow::Borrowed(unsafe { std::slice::from_raw_parts(start, length) }))
            }
            _ => None,
        }
    }

    /// Compares a payload that has come with the suspect one kept before.
    pub(super) fn compare_with_suspect(
        &mut self,
        key: usize,
        from: ReplicaId,
        tag: Tag,
        bytes: &[u8],
    ) -> Option<Compared> {
        let suspect = self.messages[key].suspect.take()?;
        let whole = bytes.len().min(SUSPECT_BYTES_MAX);
        match difference(&suspect.bytes, &bytes[..whole], suspect.element) {
            Some(difference) => Some(Compared { suppliers: [suspect.supplier, from], tag: tag.0, difference, suspect }),
            None => {
                self.messages[key].suspect = Some(suspect);
                None
            }
        }
    }

    /// Reports the difference if the later payload was right. Else the suspect is kept for the next one.
    pub(super) fn tell_evidence(&mut self, id: MessageId, compared: Compared) {
        let key = self.record_of(id);
        if let Some(message) = key.map(|key| &mut self.messages[key]).filter(|message| !message.verified) {
            message.suspect = Some(compared.suspect);
            return;
        }
        let evidence = Evidence {
            receiver: self.me,
            sender: id.sender,
            context: id.context,
            tag: compared.tag,
            sequence: id.sequence,
            suppliers: compared.suppliers,
            is_decided: true,
            view: compared.suspect.view,
            difference: compared.difference,
        };
        self.runtime.tell(FromAgent::Event(Event::Evidence(Box::new(evidence))));
    }
}
