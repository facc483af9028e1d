//! Faults of `--inject`, and how often each has happened.

use job_options::Fault;
use redrt_types::ReplicaId;
use redrt_wire::event::Event;
use redrt_wire::fault::ProcessFault;
use replication_manager::Report;

/// Each fault with its count.
#[derive(Debug, Default)]
pub struct Injections(Vec<(Fault, u64)>);

impl Injections {
    /// Starts with all counts at zero.
    pub fn new(faults: &[Fault]) -> Self {
        Self(faults.iter().map(|fault| (fault.clone(), 0)).collect())
    }

    /// Counts a fault if this report is about one. `host_name` maps a host's number to its name.
    pub fn count<'a>(&mut self, report: &Report, host_name: impl Fn(u32) -> &'a str) {
        let is_it = |fault: &Fault| match report {
            Report::Event(Event::Injected { replica, asked, .. }) => is_asked(fault, *replica, *asked, &host_name),
            Report::Injected { replica, fault: text } => match fault {
                Fault::Timed(kill) => kill.replica == *replica && kill.to_string() == *text,
                Fault::Random(kills) => text.starts_with("random:") && text.ends_with(&format!("={}", kills.seed)),
                Fault::Process(..) | Fault::Sick { .. } => false,
            },
            _ => false,
        };
        self.0.iter_mut().filter(|(fault, _)| is_it(fault)).for_each(|(_, count)| *count += 1);
    }

    /// The counts, in the order of `--inject`.
    pub fn counts(&self) -> Vec<u64> {
        self.0.iter().map(|(_, count)| *count).collect()
    }

    /// Restores the counts from a snapshot.
    pub fn resume(&mut self, counts: &[u64]) {
        self.0.iter_mut().zip(counts).for_each(|((_, known), count)| *known = *count);
    }

    /// Faults that have not happened, in the words of `--inject`. For random kills: how many have happened.
    pub fn missing(&self) -> impl Iterator<Item = String> {
        self.all_missing().map(|(_, words)| words)
    }

    /// Like [`missing`](Self::missing), with reasons. `sent`: number of messages that a replica has sent, if known.
    pub fn missing_with_reasons(
        &self,
        sent: impl Fn(ReplicaId) -> Option<u64>,
    ) -> impl Iterator<Item = (String, String)> {
        self.all_missing().map(move |(fault, words)| (words, why_missing(fault, &sent)))
    }

    fn all_missing(&self) -> impl Iterator<Item = (&Fault, String)> {
        self.0.iter().filter_map(|(fault, count)| match fault {
            Fault::Random(kills) => {
                let wanted = kills.count.map_or(1, u64::from);
                (*count < wanted).then(|| (fault, format!("{fault} ({count} of {wanted})")))
            }
            _ => (*count == 0).then(|| (fault, fault.to_string())),
        })
    }
}

/// Reason why a requested fault has not happened. `sent`: number of messages that its replica has sent, if known.
fn why_missing(fault: &Fault, sent: impl Fn(ReplicaId) -> Option<u64>) -> String {
    use ProcessFault::{FlipHeap, FlipLogged, FlipPayload, FlipThread, FlipWire, Kill, Reset};
    let (send, needs_bytes) = match fault {
        Fault::Process(_, FlipPayload { send, .. } | FlipWire { send, .. } | FlipLogged { send, .. }) => (*send, true),
        Fault::Process(_, Kill { send } | FlipHeap { send, .. } | FlipThread { send, .. } | Reset { send, .. }) => {
            (*send, false)
        }
        _ => return "what it waited for did not happen".into(),
    };
    let Fault::Process(replica, _) = fault else { return String::new() };
    match sent(*replica) {
        Some(sent) if sent < send => format!("{replica} has sent {sent} messages"),
        Some(_) if needs_bytes => format!("message {send} of {replica} has no bytes in which a bit could be flipped"),
        None if needs_bytes => format!("{replica} did not come to send {send}, or that message has no bytes"),
        _ => format!("{replica} did not come to send {send}"),
    }
}

fn is_asked<'a>(fault: &Fault, by: ReplicaId, asked: ProcessFault, host_name: impl Fn(u32) -> &'a str) -> bool {
    match (fault, asked) {
        (Fault::Process(replica, fault), _) => *replica == by && *fault == asked,
        (Fault::Sick { host, period }, ProcessFault::Sick { host: number, period: other }) => {
            *period == other && host == host_name(number)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replication_manager::{RandomKills, TimedKill};
    use std::time::Duration;

    #[test]
    fn why_a_fault_has_not_happened_is_told_as_far_as_it_is_known() {
        let replica = ReplicaId::new(1, 0);
        let flip = Fault::Process(replica, ProcessFault::FlipPayload { send: 3, bit: 7 });
        let kill = Fault::Process(replica, ProcessFault::Kill { send: 3 });
        for (fault, sent, why) in [
            (&flip, Some(5), "message 3 of 1.0 has no bytes in which a bit could be flipped"),
            (&flip, Some(2), "1.0 has sent 2 messages"),
            (&flip, None, "1.0 did not come to send 3, or that message has no bytes"),
            (&kill, None, "1.0 did not come to send 3"),
            (&kill, Some(2), "1.0 has sent 2 messages"),
            (&Fault::Sick { host: "h2".into(), period: 9 }, Some(2), "what it waited for did not happen"),
        ] {
            assert_eq!(why_missing(fault, |_| sent), why);
        }
    }

    #[test]
    fn what_has_not_happened_is_told_in_the_words_that_asked_for_it() {
        let (one, other) = (ReplicaId::new(1, 0), ReplicaId::new(1, 1));
        let flip = ProcessFault::FlipPayload { send: 10, bit: 3 };
        let kill = TimedKill { replica: one, at: Duration::from_millis(2500) };
        let random = RandomKills { mean_time: Duration::from_secs(5), seed: 7, count: Some(2) };
        let faults = [
            Fault::Process(one, flip),
            Fault::Process(other, flip),
            Fault::Timed(kill),
            Fault::Random(random),
            Fault::Sick { host: "h2".into(), period: 900 },
        ];
        let mut injections = Injections::new(&faults);
        let mut note = |report| {
            injections.count(&report, |number| ["h1", "h2"][number as usize]);
            injections.missing().collect::<Vec<_>>().join(" ")
        };
        let event = |replica, asked| Report::Event(Event::Injected { replica, asked, fault: String::new() });
        assert_eq!(
            note(event(one, flip)),
            "flip:1.1@#10 kill:1.0@2.5s random:mtbf=5s,seed=7,count=2 (0 of 2) sick:h2:900"
        );
        // Host and fault both match.
        let sick = |host| event(one, ProcessFault::Sick { host, period: 900 });
        assert!(note(sick(0)).ends_with("sick:h2:900"));
        assert!(!note(sick(1)).contains("sick"));
        assert!(!note(Report::Injected { replica: one, fault: kill.to_string() }).contains("2.5s"));
        let random = || Report::Injected { replica: other, fault: "random:seed=7".into() };
        assert_eq!(note(random()), "flip:1.1@#10 random:mtbf=5s,seed=7,count=2 (1 of 2)");
        assert_eq!(note(random()), "flip:1.1@#10");
        assert_eq!(note(event(other, flip)), "");
    }
}
