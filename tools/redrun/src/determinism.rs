//! The report of `--check-determinism`: places where the program is not deterministic.

use crate::symbols::{Location, Symbols};
use job_coordinator::Coordinator;
use job_report::in_words;
use redrt_types::ReplicaId;
use redrt_wire::event::{Parting, ReadingAlone};
use redrt_wire::trace::{LockEvent, Trace};
use replication_manager::{Apart, Check, Nondeterministic};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum number of places in the report.
const PLACES_MAX: usize = 8;
/// Maximum number of functions shown of a stack.
const DEPTH_MAX: usize = 10;
/// Prefixes of the libraries' file names.
const LIBRARIES: [&str; 2] = ["libmpi_abi.so", PRELOADED];
const PRELOADED: &str = "libredrt_preload.so";
/// Prefix of the C library's file name.
const C_LIBRARY: &str = "libc.so";

/// A stack for the user: the MPI function that was called, and its callers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Stack {
    call: String,
    callers: Vec<Location>,
}

impl Stack {
    fn of(trace: &Trace, symbols: &mut Symbols) -> Self {
        let frames = trace.frames.iter().enumerate();
        let located = frames.map(|(depth, frame)| symbols.locate(frame, depth > 0)).collect();
        Self::of_located(located)
    }

    /// The stack of these frames, each of which may be several functions within each other.
    fn of_located(mut located: Vec<Vec<Location>>) -> Self {
        let is_of = |locations: &[Location], libraries: &[&str]| {
            let is_library = |name: &str| libraries.iter().any(|library| name.starts_with(library));
            locations.iter().any(|one| one.object.rsplit('/').next().is_some_and(is_library))
        };
        // A thread begins in the C library, then in the preloaded one, and then in the program. The outermost frame may
        // be in no file.
        let is_before = |locations: &Vec<Location>| {
            is_of(locations, &[C_LIBRARY]) || locations.iter().all(|one| one.object.is_empty())
        };
        let begin = located.iter().rposition(|locations| !is_before(locations));
        if let Some(begin) = begin.filter(|begin| is_of(&located[*begin], &[PRELOADED])) {
            let is_outside = |locations: &Vec<Location>| !is_of(locations, &[PRELOADED]);
            located.truncate(located[..begin].iter().rposition(is_outside).map_or(0, |last| last + 1));
        }
        let is_own = |locations: &Vec<Location>| is_of(locations, &LIBRARIES);
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
        self.callers.iter().map(|caller| format!("      {}", in_function(caller))).collect()
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

fn in_function(place: &Location) -> String {
    match place.function.is_empty() {
        true => place.place.clone(),
        false => format!("{} at {}", place.function, place.place),
    }
}

/// A position in a thread of one replica: its stack, and the thread's latest steps in the order of threads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Position {
    thread: u64,
    thread_name: String,
    stack: Stack,
    /// By number, the earliest first.
    lock_events: Vec<(u64, Stack)>,
}

impl Position {
    fn of(trace: &Trace, symbols: &mut Symbols) -> Self {
        let Trace { time_ns, frames: _, thread, thread_name, lock_events } = trace;
        let event = |LockEvent { number, frames }: &LockEvent| {
            let trace = Trace { time_ns: *time_ns, frames: frames.clone(), ..Trace::default() };
            (*number, Stack::of(&trace, symbols))
        };
        let lock_events = lock_events.iter().map(event).collect();
        Self { thread: *thread, thread_name: thread_name.clone(), stack: Stack::of(trace, symbols), lock_events }
    }

    /// The thread in words that follow on what it did; empty in a program whose threads have taken no lock.
    fn thread_words(&self) -> String {
        match self.thread {
            0 if self.lock_events.is_empty() => String::new(),
            0 => ", in the main thread".into(),
            thread => format!(", in thread {thread} ({})", self.thread_name),
        }
    }

    fn json(&self) -> Value {
        let mut json = self.stack.json();
        json["thread"] = self.thread.into();
        json["thread_name"] = self.thread_name.as_str().into();
        json
    }
}

/// The latest step of a thread that is the same in all these positions.
fn last_common_event<'a>(positions: impl IntoIterator<Item = &'a Position>) -> Option<&'a (u64, Stack)> {
    let mut positions = positions.into_iter();
    let first = positions.next()?;
    let others: Vec<_> = positions.collect();
    let has =
        |other: &Position, event: &(u64, Stack)| other.thread == first.thread && other.lock_events.contains(event);
    let is_common = |event: &&(u64, Stack)| !others.is_empty() && others.iter().all(|other| has(other, event));
    first.lock_events.iter().rev().find(is_common)
}

/// Tells where threads last did the same, and what each has done since then.
fn event_lines(positions: &BTreeMap<ReplicaId, Position>) -> Vec<String> {
    let words = |(number, stack): &(u64, Stack)| {
        let place = stack.callers.first().map(|caller| format!(", in {}", in_function(caller))).unwrap_or_default();
        let call = if stack.call.is_empty() { "an operation" } else { &stack.call };
        format!("{call}, operation {number} of the thread{place}")
    };
    let common = last_common_event(positions.values());
    let since = |position: &Position| {
        let after = common.map_or(0, |common| common.0);
        position.lock_events.iter().find(|event| event.0 > after).map(words)
    };
    let mut lines: Vec<_> =
        common.iter().map(|event| format!("    the last lock that both took alike: {}", words(event))).collect();
    let next = positions.iter().filter_map(|(replica, position)| Some((replica, since(position)?)));
    lines.extend(next.map(|(replica, event)| format!("    {replica} then took another one: {event}")));
    lines
}

/// A place in the program that sends differing messages.
struct SendSite<'a> {
    first: &'a Nondeterministic,
    positions: BTreeMap<ReplicaId, Position>,
    count: u64,
}

impl<'a> SendSite<'a> {
    /// All places, ordered by the first message of each.
    fn all(check: &'a Check, symbols: &mut Symbols) -> Vec<Self> {
        let mut places: Vec<Self> = Vec::new();
        for message in check.messages() {
            let traces = message.traces.iter();
            let positions: BTreeMap<_, _> = traces.map(|(at, trace)| (*at, Position::of(trace, symbols))).collect();
            let is_same = |place: &&mut Self| {
                let known = place.first;
                let stacks = place.positions.iter().map(|(at, position)| (at, &position.stack));
                stacks.eq(positions.iter().map(|(at, position)| (at, &position.stack)))
                    && (&known.communicator, known.tag) == (&message.communicator, message.tag)
            };
            match places.iter_mut().find(is_same) {
                Some(place) => place.count += 1,
                None => places.push(Self { first: message, positions, count: 1 }),
            }
        }
        places
    }

    fn call(&self) -> &str {
        let mut calls = self.positions.values().map(|position| position.stack.call.as_str());
        let call = calls.find(|call| !call.is_empty());
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
        let positions: Vec<_> = self.positions.iter().collect();
        match &positions[..] {
            [] => lines.push("    where it was sent is not known any more".into()),
            [(one, first), (other, second)] if (first.thread, &first.stack) == (second.thread, &second.stack) => {
                lines.push(format!("    sent by {one} and {other} here{}:", first.thread_words()));
                lines.extend(first.stack.lines());
            }
            positions => {
                for (replica, position) in positions {
                    lines.push(format!("    sent by {replica} here{}:", position.thread_words()));
                    lines.extend(position.stack.lines());
                }
            }
        }
        lines.extend(event_lines(&self.positions));
        lines
    }

    fn json(&self) -> Value {
        let Nondeterministic { sender, sending, communicator, tag, length_bytes, difference, .. } = self.first;
        let stacks: serde_json::Map<_, _> =
            self.positions.iter().map(|(replica, position)| (replica.to_string(), position.json())).collect();
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
            "stacks": stacks, "last_common_lock": common_json(&self.positions),
        })
    }
}

fn common_json(positions: &BTreeMap<ReplicaId, Position>) -> Value {
    let common = last_common_event(positions.values());
    common.map_or(Value::Null, |(number, stack)| json!({ "operation": number, "stack": stack.json() }))
}

/// Positions in which the paths of replicas parted. Empty if unknown.
fn positions_of(
    replica: ReplicaId,
    what: &Apart,
    check: &Check,
    symbols: &mut Symbols,
) -> BTreeMap<ReplicaId, Position> {
    let traces = match what {
        Apart::Path { outcome, .. } => check.stacks.get(outcome),
        Apart::Diverged(_) => {
            check.parted.get(&replica).and_then(|thread| check.standing.get(&(replica.rank, *thread)))
        }
        Apart::GaveUp { .. } => None,
    };
    traces.into_iter().flatten().map(|(replica, trace)| (*replica, Position::of(trace, symbols))).collect()
}

/// Tells where the replicas stand in whose paths this one took another one.
fn apart_lines(replica: ReplicaId, what: &Apart, positions: &BTreeMap<ReplicaId, Position>) -> Vec<String> {
    let mut lines = Vec::new();
    for (of, position) in positions {
        let does = match what {
            Apart::Path { .. } => "asked here",
            Apart::Diverged(parting) if *of == replica && *parting != Parting::Ended => "stands here",
            _ => "took its latest lock here",
        };
        let call = &position.stack.call;
        let call = if call.is_empty() { String::new() } else { format!(", in {call}") };
        lines.push(format!("    {of} {does}{call}{}:", position.thread_words()));
        lines.extend(position.stack.lines());
    }
    lines.extend(event_lines(positions));
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
    let others: Vec<_> =
        check.others.iter().map(|other| (other, positions_of(other.0, &other.1, check, symbols))).collect();
    for ((replica, what), positions) in others.iter().take(PLACES_MAX) {
        lines.push(format!("  replica {replica}: {what}"));
        lines.extend(apart_lines(*replica, what, positions));
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
    let others = others.iter().map(|((replica, what), positions)| {
        let stacks = positions.iter().map(|(of, position)| (of.to_string(), position.json()));
        let stacks: serde_json::Map<_, _> = stacks.collect();
        json!({
            "replica": replica.to_string(), "what": what.to_string(), "stacks": stacks,
            "last_common_lock": common_json(positions),
        })
    });
    let json = json!({
        "deterministic": is_deterministic, "messages": places.iter().map(SendSite::json).collect::<Vec<_>>(),
        "readings_alone": alone.iter().map(alone_json).collect::<Vec<_>>(),
        "output": printed.collect::<Vec<_>>(), "others": others.collect::<Vec<_>>(), "untold": check.untold_count,
    });
    Verdict { lines, json, is_deterministic: check.is_clean() }
}

/// The check's result. `None` without `--check-determinism`.
pub(super) fn judge(coordinator: &Coordinator, ended_well: bool) -> Option<Verdict> {
    let told = coordinator.manager().members().statistics().filter_map(|(_, one)| one);
    let compared = told.map(|one| one.messages_compared).sum();
    coordinator.manager().determinism().map(|check| verdict(check, compared, ended_well))
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
        let one =
            ReadingAlone { replica, clock: 2, thread: 0, trace: Trace { time_ns: 1, frames, ..Trace::default() } };
        let mut check = Check::default();
        check.alone.push(one);
        let verdict = verdict(&check, 7, true);
        let said = verdict.lines.join("\n");
        assert!(said.contains("1.0 read the processor time of its process alone, in thread 0:"), "{said}");
        assert!(said.contains("libgc.so.1+0x1234"), "{said}");
        assert!(verdict.is_deterministic && verdict.json["deterministic"] == true);
        assert_eq!(verdict.json["readings_alone"][0]["replica"], "1.0");
    }

    /// The preloaded library begins each thread of the program.
    #[test]
    fn stacks_of_all_threads_have_the_programs_functions() {
        let frame = |object: &str, function: &str| {
            let (object, function) = (format!("/lib/{object}"), function.to_owned());
            vec![Location { place: function.clone(), function, object }]
        };
        let send = [frame("libmpi_abi.so.1", "call_send"), frame("app", "send_sums"), frame("app", "work")];
        let nowhere = vec![Location { object: String::new(), ..frame("", "")[0].clone() }];
        let thread = [frame(PRELOADED, "redrt_preload::threads::begin"), frame("libc.so.6", "start_thread"), nowhere];
        let main = [frame("app", "main"), frame("libc.so.6", "__libc_start_main"), frame("app", "_start")];
        let names = |stack: Stack| stack.callers.into_iter().map(|caller| caller.function).collect::<Vec<_>>();
        assert_eq!(names(Stack::of_located([&send[..], &thread].concat())), ["send_sums", "work"]);
        assert_eq!(names(Stack::of_located([&send[..], &main].concat())), ["send_sums", "work", "main"]);
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
