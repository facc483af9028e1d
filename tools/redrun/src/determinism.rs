//! The report of `--check-determinism`: places where the program is not deterministic.

use crate::symbols::{Location, Symbols};
use coordinator::{Apart, Check, Nondeterministic};
use job_report::in_words;
use job_root::Root;
use redrt_types::ReplicaId;
use redrt_wire::event::ReadingAlone;
use redrt_wire::trace::Trace;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum number of places in the report.
const PLACES_MAX: usize = 8;
/// Maximum number of functions shown of a stack.
const DEPTH_MAX: usize = 10;
/// Prefixes of the libraries' file names.
const LIBRARIES: [&str; 2] = ["libmpi_abi.so", "libredrt_preload.so"];

/// A stack for the user: the MPI function that was called, and its callers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Stack {
    call: String,
    callers: Vec<Location>,
}

impl Stack {
    fn of(trace: &Trace, symbols: &mut Symbols) -> Self {
        let frames = trace.frames.iter().enumerate();
        let located: Vec<_> = frames.map(|(depth, frame)| symbols.locate(frame, depth > 0)).collect();
        let is_own = |locations: &Vec<Location>| {
            let is_library = |name: &str| LIBRARIES.iter().any(|library| name.starts_with(library));
            locations.iter().any(|one| one.object.rsplit('/').next().is_some_and(is_library))
        };
        // Searches for the outermost frame of the libraries: a callback into the program is below it, and not its
        // caller.
        let own_count = located.iter().rposition(is_own).map_or(0, |last| last + 1);
        let call = located[..own_count].last().and_then(|last| last.last());
        let call = call.map(|call| call_name(&call.function)).unwrap_or_default();
        let mut callers: Vec<_> = located[own_count..].iter().flatten().take(DEPTH_MAX).cloned().collect();
        // Frames before `main` are the same in all programs.
        let main = callers.iter().position(|caller| caller.function == "main");
        callers.truncate(main.map_or(callers.len(), |main| main + 1));
        Self { call, callers }
    }

    fn lines(&self) -> Vec<String> {
        let line = |caller: &Location| match caller.function.is_empty() {
            true => format!("      {}", caller.place),
            false => format!("      {} at {}", caller.function, caller.place),
        };
        self.callers.iter().map(line).collect()
    }

    fn json(&self) -> Value {
        let callers = self.callers.iter().map(|one| json!({ "function": one.function, "place": one.place }));
        json!({ "call": self.call, "callers": callers.collect::<Vec<_>>() })
    }
}

/// The MPI function that a function of the library carries out: `MPI_Send` leads to `call_send` at once.
fn call_name(function: &str) -> String {
    let name = function.rsplit("::").next().unwrap_or(function);
    match name.strip_prefix("call_").and_then(|rest| rest.split_at_checked(1)) {
        Some((first, rest)) => format!("MPI_{}{rest}", first.to_uppercase()),
        None => name.trim_start_matches('P').to_owned(),
    }
}

/// A place in the program that sends differing messages.
struct SendSite<'a> {
    first: &'a Nondeterministic,
    stacks: BTreeMap<ReplicaId, Stack>,
    count: u64,
}

impl<'a> SendSite<'a> {
    /// All places, ordered by the first message of each.
    fn all(check: &'a Check, symbols: &mut Symbols) -> Vec<Self> {
        let mut places: Vec<Self> = Vec::new();
        for message in check.messages() {
            let traces = message.traces.iter();
            let stacks: BTreeMap<_, _> = traces.map(|(at, trace)| (*at, Stack::of(trace, symbols))).collect();
            let is_same = |place: &&mut Self| {
                let known = place.first;
                place.stacks == stacks && (&known.communicator, known.tag) == (&message.communicator, message.tag)
            };
            match places.iter_mut().find(is_same) {
                Some(place) => place.count += 1,
                None => places.push(Self { first: message, stacks, count: 1 }),
            }
        }
        places
    }

    fn call(&self) -> &str {
        let call = self.stacks.values().map(|stack| stack.call.as_str()).find(|call| !call.is_empty());
        call.unwrap_or("a message")
    }

    fn lines(&self) -> Vec<String> {
        let Nondeterministic { sender, sending, communicator, tag, length_bytes, difference, .. } = self.first;
        let times = if self.count == 1 { String::new() } else { format!(", the first of {} like it", self.count) };
        let mut lines = vec![format!(
            "  {} of rank {sender} to rank {}: {communicator}, tag {tag}, number {}, {length_bytes} bytes{times}",
            self.call(),
            sending.to,
            sending.sequence.0
        )];
        lines.push(match difference {
            Some(([one, other], difference)) => format!("    from {one} and from {other}: {}", in_words(difference)),
            None => "    in what it differs is not known: it was too long, or one side has ended".into(),
        });
        let stacks: Vec<_> = self.stacks.iter().collect();
        match &stacks[..] {
            [] => lines.push("    where it was sent is not known any more".into()),
            [(one, first), (other, second)] if first == second => {
                lines.push(format!("    sent by {one} and {other} here:"));
                lines.extend(first.lines());
            }
            stacks => {
                for (replica, stack) in stacks {
                    lines.push(format!("    sent by {replica} here:"));
                    lines.extend(stack.lines());
                }
            }
        }
        lines
    }

    fn json(&self) -> Value {
        let Nondeterministic { sender, sending, communicator, tag, length_bytes, difference, .. } = self.first;
        let stacks: serde_json::Map<_, _> =
            self.stacks.iter().map(|(replica, stack)| (replica.to_string(), stack.json())).collect();
        let difference = difference.as_ref().map(|([one, other], difference)| {
            json!({
                "one": one.to_string(), "other": other.to_string(), "element": difference.element,
                "index": difference.index, "first_byte": difference.offset, "values": difference.values,
                "ulps": difference.ulps, "words": in_words(difference),
            })
        });
        json!({
            "call": self.call(), "sender": sender.0, "receiver": sending.to.0, "communicator": communicator, "tag": tag,
            "sequence": sending.sequence.0, "length_bytes": length_bytes, "count": self.count, "difference": difference,
            "stacks": stacks,
        })
    }
}

/// Stacks of the calls in which the replicas' paths parted. Empty if unknown.
fn stacks_of(what: &Apart, check: &Check, symbols: &mut Symbols) -> Vec<(ReplicaId, Stack)> {
    let Apart::Path { outcome, .. } = what else { return Vec::new() };
    let traces = check.stacks.get(outcome).into_iter().flatten();
    traces.map(|(replica, trace)| (*replica, Stack::of(trace, symbols))).collect()
}

fn asked_here(replica: ReplicaId, stack: &Stack) -> Vec<String> {
    let call = if stack.call.is_empty() { String::new() } else { format!(", in {}", stack.call) };
    let mut lines = vec![format!("    {replica} asked here{call}:")];
    lines.extend(stack.lines());
    lines
}

fn alone_json((one, stack): &(&ReadingAlone, Stack)) -> Value {
    let ReadingAlone { replica, clock, thread, .. } = one;
    json!({ "replica": replica.to_string(), "clock": clock, "thread": thread, "stack": stack.json() })
}

/// Result of a check.
pub(super) struct Verdict {
    pub lines: Vec<String>,
    pub json: Value,
    pub is_deterministic: bool,
}

/// First line and outcome for a program without a difference; `None` if nothing was compared or the job ended early. A
/// process that was ended has not reported its comparisons.
fn of_no_difference(compared: u64, ended_well: bool) -> (String, Option<bool>) {
    match (ended_well, compared) {
        (true, 0) => {
            ("no difference was found; the program has received no message that could be compared".into(), None)
        }
        (true, _) => {
            (format!("the program was deterministic: {compared} messages were the same in both replicas"), Some(true))
        }
        (false, _) => (
            "no difference was found until the job was ended; what it would have done after that is not known".into(),
            None,
        ),
    }
}

fn verdict(check: &Check, compared: u64, ended_well: bool) -> Verdict {
    let symbols = &mut Symbols::default();
    let places = SendSite::all(check, symbols);
    let (first, is_deterministic) = match check.is_clean() {
        true => of_no_difference(compared, ended_well),
        false => {
            ("the program is not deterministic; what follows after the first may follow from it".into(), Some(false))
        }
    };
    let mut lines = vec![first];
    for place in places.iter().take(PLACES_MAX) {
        lines.extend(place.lines());
    }
    if places.len() > PLACES_MAX {
        lines.push(format!("  {} more places; --json-summary has all", places.len() - PLACES_MAX));
    }
    let others: Vec<_> = check.others.iter().map(|other| (other, stacks_of(&other.1, check, symbols))).collect();
    for ((replica, what), stacks) in others.iter().take(PLACES_MAX) {
        lines.push(format!("  replica {replica}: {what}"));
        lines.extend(stacks.iter().flat_map(|(of, stack)| asked_here(*of, stack)));
    }
    for (rank, line) in check.lines.iter().take(PLACES_MAX) {
        let texts = line.sides.iter().map(|side| format!("{:?}", String::from_utf8_lossy(&side.text)));
        let texts: Vec<_> = texts.collect();
        lines.push(format!("  line {} that rank {rank} prints: {}", line.line, texts.join(" and ")));
    }
    let alone: Vec<_> = check.alone.iter().map(|one| (one, Stack::of(&one.trace, symbols))).collect();
    if !alone.is_empty() {
        lines.push("  one replica read a clock where the other did not, as runtimes of languages do:".into());
    }
    for (one, stack) in alone.iter().take(PLACES_MAX) {
        lines.push(format!("    {} {one}:", one.replica));
        lines.extend(stack.lines());
    }
    if check.untold_count > 0 {
        lines.push(format!("  and {} more differences", check.untold_count));
    }
    let printed = check.lines.iter().map(|(rank, line)| {
        let texts = line.sides.iter().map(|side| String::from_utf8_lossy(&side.text).into_owned());
        json!({ "rank": rank.0, "line": line.line, "texts": texts.collect::<Vec<_>>() })
    });
    let others = others.iter().map(|((replica, what), stacks)| {
        let stacks: serde_json::Map<_, _> = stacks.iter().map(|(of, stack)| (of.to_string(), stack.json())).collect();
        json!({ "replica": replica.to_string(), "what": what.to_string(), "stacks": stacks })
    });
    let json = json!({
        "deterministic": is_deterministic, "messages": places.iter().map(SendSite::json).collect::<Vec<_>>(),
        "readings_alone": alone.iter().map(alone_json).collect::<Vec<_>>(),
        "output": printed.collect::<Vec<_>>(), "others": others.collect::<Vec<_>>(), "untold": check.untold_count,
    });
    Verdict { lines, json, is_deterministic: check.is_clean() }
}

/// The check's result. `None` without `--check-determinism`.
pub(super) fn judge(root: &Root, ended_well: bool) -> Option<Verdict> {
    let told = root.coordinator().members().statistics().filter_map(|(_, one)| one);
    let compared = told.map(|one| one.messages_compared).sum();
    root.coordinator().determinism().map(|check| verdict(check, compared, ended_well))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_not_compared_in_full_is_not_called_deterministic() {
        for (compared, ended_well, known) in
            [(7, true, Some(true)), (0, true, None), (7, false, None), (0, false, None)]
        {
            let verdict = verdict(&Check::default(), compared, ended_well);
            assert_eq!(verdict.lines[0].contains("was deterministic"), known.is_some(), "{:?}", verdict.lines);
            assert_eq!(verdict.json["deterministic"].as_bool(), known);
        }
    }

    /// They are shown in the report.
    #[test]
    fn a_runtimes_clocks_make_no_program_nondeterministic() {
        let frames = vec![redrt_wire::trace::Frame { file: "/lib/libgc.so.1".into(), offset: 0x1234 }];
        let replica = ReplicaId::new(1, 0);
        let one = ReadingAlone { replica, clock: 2, thread: 0, trace: Trace { time_ns: 1, frames } };
        let mut check = Check::default();
        check.alone.push(one);
        let verdict = verdict(&check, 7, true);
        let said = verdict.lines.join("\n");
        assert!(said.contains("1.0 read the processor time of its process alone, in thread 0:"), "{said}");
        assert!(said.contains("libgc.so.1+0x1234"), "{said}");
        assert!(verdict.is_deterministic && verdict.json["deterministic"] == true);
        assert_eq!(verdict.json["readings_alone"][0]["replica"], "1.0");
    }

    #[test]
    fn calls_have_the_names_that_programs_use() {
        for (function, call) in [
            ("redrt::abi::exports::call_send", "MPI_Send"),
            ("call_reduce_scatter_block_c", "MPI_Reduce_scatter_block_c"),
            ("PMPI_Bcast", "MPI_Bcast"),
            ("MPI_Put", "MPI_Put"),
            ("call_", "call_"),
        ] {
            assert_eq!(call_name(function), call);
        }
    }
}
