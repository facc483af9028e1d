//! No replica ends by an internal error because of a message from another. Each expression that may end a process is
//! listed here, with the reason why no message from another replica leads there.

use super::{root, sources};
use std::collections::BTreeMap;
use std::path::Path;

/// Code that handles messages from other replicas, without its tests, simulations and fuzzing.
const HEARING: [&str; 7] = [
    "quiesce/src",
    "redrt/redrt-engine/src",
    "redrt/redrt-runtime/src/decide.rs",
    "redrt/redrt-runtime/src/decide",
    "redrt/redrt-files/src/file",
    "redrt/redrt-files/src/posix",
    "redrt/redrt-window/src",
];

/// Expressions that may end a process: file, expression, number of occurrences, and the reason why no message from
/// another replica leads there. An index is listed by the name of the indexed value, an expectation by its words.
#[rustfmt::skip]
const MAY_END: &[(&str, &str, usize, &str)] = &[
    ("quiesce/src/channel.rs", "self.cursors[", 4, "an index of a replica below the degree: channels are of the world"),
    ("quiesce/src/channel.rs", "self.log[", 1, "an offset that was found in the log"),
    ("quiesce/src/channel.rs", "self.slots[", 4,
        "`admit` has made the window as long, within the number of messages spoken of"),
    ("quiesce/src/decision.rs", "panic!", 1, "the own engine decides only when told to, under one lock"),
    ("quiesce/src/decision.rs", "self.held_by[", 7,
        "the sender of a frame is of the world, and the vector as long as the degree"),
    ("quiesce/src/decision.rs", "assert!", 2,
        "`check_kept` has refused siblings that lack more; the own cut comes after a flush"),
    ("quiesce/src/hashable_map.rs", "self.all[", 2, "places in it are its own, and nothing is taken out"),
    ("quiesce/src/matching/arena.rs", "self.entries[", 9, "keys and links are its own"),
    ("quiesce/src/matching/arena.rs", "assert!", 1, "4 billion messages that wait: memory ends before"),
    ("quiesce/src/matching/arena.rs", ".links[", 7, "constants below the number of lists"),
    ("quiesce/src/matching/unexpected.rs", "expect(\"a binned entry has its bin\")", 1, "entries are binned here"),
    ("quiesce/src/replica/arbitration.rs", "self.ready[", 1,
        "ranks of the own loops and views, which are of the world"),
    ("quiesce/src/replica/envelopes.rs", "expect(\"it has just come\")", 1, "the slot that this frame has filled"),
    ("quiesce/src/replica/envelopes.rs", "expect(\"a message has its channel\")", 2,
        "messages are named after they were found in it"),
    ("quiesce/src/replica/envelopes.rs", "expect(\"it is not settled\")", 2, "it was found open before"),
    ("quiesce/src/replica/join.rs", "sets[", 1, "places of the world, from the coordinator"),
    ("quiesce/src/replica/join.rs", "self.pinned[", 4, "places of the world, from the coordinator"),
    ("quiesce/src/replica/join.rs", "self.ready[", 2, "places of the world, from the coordinator"),
    ("quiesce/src/replica/join.rs", "ready[", 2, "ranks of the own loop"),
    ("quiesce/src/replica/join.rs", "awaited[", 1, "ranks of the own loop"),
    ("quiesce/src/replica/join.rs", "expect(\"it was just listed\")", 3, "a key that this map has just listed"),
    ("quiesce/src/replica/join.rs", "assert!", 1, "the own cut: the engine has taken all outputs"),
    ("quiesce/src/replica/join.rs", "assert_eq!", 1, "the own cut: the place comes from the coordinator"),
    ("quiesce/src/replica/membership.rs", "self.live[", 1, "ranks of the own loop"),
    ("quiesce/src/replica/membership.rs", "self.services[", 3, "processes of the world"),
    ("quiesce/src/replica/membership.rs", "self.wanted[", 6, "processes of the world"),
    ("quiesce/src/replica/membership.rs", "expect(\"it was just listed\")", 2, "a key that this map has just listed"),
    ("quiesce/src/replica/membership.rs", "outbox.cursors[", 1, "a place of the view, which is of the world"),
    ("quiesce/src/replica/membership.rs", "expect(\"it is in the log\")", 1, "a number that the log has just listed"),
    ("quiesce/src/replica/mod.rs", "assert!", 2, "of the own start: view and place come from the coordinator"),
    ("quiesce/src/replica/mod.rs", "live[", 2, "ranks of the world"),
    ("quiesce/src/replica/mod.rs", "expect(\"the own sphere has a live replica\")", 1,
        "of the own start: this replica is live"),
    ("quiesce/src/replica/mod.rs", "unreachable!", 1, "all other kinds of frames are matched above it"),
    ("quiesce/src/replica/mod.rs", "self.live[", 1, "ranks of the world"),
    ("quiesce/src/replica/mod.rs", "self.pinned[", 1, "ranks of the world"),
    ("quiesce/src/replica/paths.rs", "self.disputes[", 1, "its place was just found"),
    ("quiesce/src/replica/receiving.rs", "expect(\"it was just found\")", 1, "the window has just listed it"),
    ("quiesce/src/replica/receiving.rs", "expect(\"a message has its channel\")", 2,
        "messages are named after they were found in it"),
    ("quiesce/src/replica/receiving.rs", "expect(\"it is not settled yet\")", 1, "conclusions are of open slots"),
    ("quiesce/src/replica/receiving.rs", "expect(\"a message was received on it\")", 1,
        "only such channels are listed as not acknowledged"),
    ("quiesce/src/replica/receiving.rs", "expect(\"a complete message has arrived\")", 1,
        "reports are of messages with an offer, which brings the envelope"),
    ("quiesce/src/replica/receiving.rs", "expect(\"the message is not settled\")", 1, "conclusions are of open slots"),
    ("quiesce/src/replica/receiving.rs", "expect(\"the channel was listed\")", 1,
        "a key that this map has just listed"),
    ("quiesce/src/replica/receiving.rs", "live[", 1, "the rank of a sender, who is of the world"),
    ("quiesce/src/replica/reset.rs", "self.services[", 2, "processes of the world"),
    ("quiesce/src/replica/reset.rs", "expect(\"it was just listed\")", 1, "a key that this map has just listed"),
    ("quiesce/src/replica/reset.rs", "self.wanted[", 2, "processes of the world"),
    ("quiesce/src/replica/sending.rs", "self.pinned[", 1,
        "the destination of an own send, which the communicator has checked"),
    ("quiesce/src/replica/sending.rs", "self.services[", 4, "processes of the world"),
    ("quiesce/src/replica/sending.rs", "services[", 2, "replicas of one rank of the world"),
    ("quiesce/src/replica/sending.rs", "expect(\"a held send has its channel\")", 1, "own sends"),
    ("quiesce/src/replica/sending.rs", "expect(\"it was just listed\")", 1, "a key that this map has just listed"),
    ("quiesce/src/replica/sending.rs", "outbox.cursors[", 1, "the sender of a frame is of the world"),
    ("quiesce/src/replica/sending.rs", "expect(\"it is in the log\")", 1, "a number that the log has just listed"),
    ("redrt/redrt-engine/src/arrivals.rs", "self.messages[", 4, "keys of the own table"),
    ("redrt/redrt-engine/src/cancel.rs", "unreachable!", 1, "`Call::can_have` refuses other outcomes of this question"),
    ("redrt/redrt-engine/src/cancel.rs", "abort(", 1, "the own word is not kept: the own memory is corrupt"),
    ("redrt/redrt-engine/src/cloning.rs", "expect(\"only replicated processes are cloned\")", 1, "the own cut"),
    ("redrt/redrt-engine/src/contact.rs", "known.contacts[", 1, "numbers that this process has given"),
    ("redrt/redrt-engine/src/evidence.rs", "bytes[", 2, "lengths are bounded by that of the slice"),
    ("redrt/redrt-engine/src/injection.rs", "self.sums[", 4, "constants"),
    ("redrt/redrt-engine/src/injection.rs", "bytes[", 1, "an injected fault, within the payload or the frame"),
    ("redrt/redrt-engine/src/lib.rs", "expect(\"the world is replicated\")", 1, "called where replication is"),
    ("redrt/redrt-engine/src/link.rs", "self.peers[", 20,
        "processes of the world, or contacts that were admitted: names of links are checked first"),
    ("redrt/redrt-engine/src/link.rs", "panic!", 1, "cards of all live processes come with the view"),
    ("redrt/redrt-engine/src/link.rs", "][", 1, "an empty slice"),
    ("redrt/redrt-engine/src/link/foreign.rs", "self.peers[", 2,
        "processes of the world, or contacts that were admitted: names of links are checked first"),
    ("redrt/redrt-engine/src/link/pump.rs", "self.peers[", 10,
        "processes of the world, or contacts that were admitted: names of links are checked first"),
    ("redrt/redrt-engine/src/link/pump.rs", "self.busy[", 1, "the loop is bounded by its length"),
    ("redrt/redrt-engine/src/link/pump.rs", ")[", 1, "the pieces of a push end with its payload"),
    ("redrt/redrt-engine/src/link/pump.rs", "head[", 2, "constants"),
    ("redrt/redrt-engine/src/link/reset.rs", "self.peers[", 7,
        "processes of the world, or contacts that were admitted: names of links are checked first"),
    ("redrt/redrt-engine/src/link/sharing.rs", "self.peers[", 4,
        "processes of the world, or contacts that were admitted: names of links are checked first"),
    ("redrt/redrt-engine/src/matching.rs", "self.list[", 1, "numbers that this process has given"),
    ("redrt/redrt-engine/src/offers.rs", "expect(\"just kept\")", 1, "own sends"),
    ("redrt/redrt-engine/src/offers.rs", "expect(\"it is kept until it is released\")", 2,
        "the own machine releases it"),
    ("redrt/redrt-engine/src/payload.rs", "packed[", 2, "lengths are bounded by the capacity of the receive"),
    ("redrt/redrt-engine/src/replication/reading.rs", "unreachable!", 1,
        "`Call::can_have` refuses other outcomes of this question"),
    ("redrt/redrt-engine/src/receive.rs", "expect(\"it did not go away\")", 2, "the own memory"),
    ("redrt/redrt-engine/src/receive.rs", "expect(\"16 bytes\")", 1, "a slice of that length"),
    ("redrt/redrt-engine/src/receive.rs", ")[", 3,
        "the frame was checked to be as long (`whole_frame`); places in the own list"),
    ("redrt/redrt-engine/src/receive.rs", "expect(\"its message waits here\")", 1, "a message to oneself"),
    ("redrt/redrt-engine/src/receive.rs", "unreachable!", 4,
        "states that this process has set itself: only own receives are in the queues, and payloads come after"),
    ("redrt/redrt-engine/src/receive.rs", "expect(\"it has a rendezvous buffer\")", 1,
        "states that this process has set itself: rendezvous buffers are granted here"),
    ("redrt/redrt-engine/src/receive.rs", "expect(\"the message was matched\")", 2,
        "states that this process has set itself: rendezvous buffers are granted here"),
    ("redrt/redrt-engine/src/receive.rs", "][", 1, "an empty slice"),
    ("redrt/redrt-engine/src/replication.rs", "expect(\"it is replicated\")", 1,
        "the own machine says so of messages that it has announced before"),
    ("redrt/redrt-engine/src/replication/frames.rs", "expect(\"protocol frames are plain data\")", 1, "own frames"),
    ("redrt/redrt-engine/src/replication/routing.rs", "abort(", 3,
        "`--on-sdc abort` asks for it, or what this process has to tell at once is too long: nobody else bounds it"),
    ("redrt/redrt-engine/src/replication/routing.rs", "expect(\"an offer has a payload\")", 1,
        "the own machine gives it one"),
    ("redrt/redrt-engine/src/replication/routing.rs", "unreachable!", 1, "these kinds are handled before"),
    ("redrt/redrt-engine/src/replication/routing.rs", "expect(\"it cannot be delivered before\")", 1,
        "the own machine says so of messages that it has announced before"),
    ("redrt/redrt-engine/src/replication/routing.rs", "expect(\"it is not delivered\")", 1,
        "the own machine says so of messages that it has announced before"),
    ("redrt/redrt-engine/src/replication/routing.rs", "expect(\"it was matched\")", 1,
        "the own machine says so of messages that it has announced before"),
    ("redrt/redrt-engine/src/request.rs", "assert_eq!", 1, "of the own start"),
    ("redrt/redrt-engine/src/request.rs", "self.slots[", 4,
        "own requests: handles are checked where programs give them"),
    ("redrt/redrt-engine/src/request.rs", "assert!", 3, "own requests; two billion of them"),
    ("redrt/redrt-engine/src/request.rs", "self.generations[", 2, "own requests"),
    ("redrt/redrt-engine/src/reset.rs", "abort(", 1, "another job is lost: told to the user as that"),
    ("redrt/redrt-engine/src/send.rs", "expect(\"a pending send is outgoing\")", 1, "own sends"),
    ("redrt/redrt-engine/src/sleep.rs", "expect(\"eight bytes\")", 1, "a slice of that length"),
    ("redrt/redrt-engine/src/sleep.rs", ")[", 1, "constants"),
    ("redrt/redrt-engine/src/sleep.rs", "unreachable!", 1, "of the own start"),
    ("redrt/redrt-engine/src/tasks.rs", "expect(\"no task panics\")", 6, "own tasks"),
    ("redrt/redrt-engine/src/tasks.rs", "expect(\"not polled after completion\")", 1, "own tasks"),
    ("redrt/redrt-engine/src/traces.rs", "self.addresses[", 1, "own stacks"),
    ("redrt/redrt-engine/src/traces.rs", "expect(\"it is full\")", 1, "own stacks"),
    ("redrt/redrt-engine/src/traces.rs", "line[", 1, "own stacks"),
    ("redrt/redrt-engine/src/waiting.rs", "assert!", 2, "of the own start"),
    ("redrt/redrt-engine/src/waiting.rs", "expect(\"the engine is used after MPI_Init\")", 1,
        "calls are refused before"),
    ("redrt/redrt-runtime/src/decide.rs", "unreachable!", 1,
        "`Call::can_have` refuses other outcomes of this question"),
    ("redrt/redrt-runtime/src/decide.rs", "ids[", 1, "below the length"),
    ("redrt/redrt-runtime/src/decide.rs", "expect(\"a number is there at once\")", 1,
        "the call waits, so `decide` has an outcome"),
    ("redrt/redrt-runtime/src/decide.rs", "expect(\"it was waited for\")", 1,
        "the call waits, so `decide` has an outcome"),
    ("redrt/redrt-runtime/src/decide.rs", "expect(\"it has an answer in the end\")", 1,
        "the call waits, so `decide` has an outcome"),
    ("redrt/redrt-runtime/src/decide.rs", "expect(\"an answer is there at once\")", 1,
        "the call waits, so `decide` has an outcome"),
    ("redrt/redrt-runtime/src/decide/readings.rs", "unreachable!", 2,
        "`Call::can_have` refuses other outcomes of this question"),
    ("redrt/redrt-files/src/file/access.rs", "bytes[", 1, "pieces of the own buffer"),
    ("redrt/redrt-files/src/file/disk.rs", "bytes[", 2, "pieces of the own buffer"),
    ("redrt/redrt-files/src/file/mod.rs", "expect(\"a file is registered when it is opened\")", 1, "own objects"),
    ("redrt/redrt-files/src/file/open.rs", "card[", 2, "arrays of constant length"),
    ("redrt/redrt-files/src/file/open.rs", "cards[", 1, "one for each member: collectives bring as many"),
    ("redrt/redrt-files/src/file/open.rs", "][", 1, "arrays of constant length; one for each member"),
    ("redrt/redrt-files/src/file/shared.rs", "card[", 2, "arrays of constant length"),
    ("redrt/redrt-files/src/file/shared.rs", "][", 1, "arrays of constant length; one for each member"),
    ("redrt/redrt-files/src/file/shared.rs", "cards[", 1, "one for each member: collectives bring as many"),
    ("redrt/redrt-files/src/file/view.rs", "expect(\"MPI_BYTE is predefined\")", 1, "a constant of the standard"),
    ("redrt/redrt-files/src/file/witness.rs", "expect(\"8 bytes\")", 1, "a slice of that length"),
    ("redrt/redrt-files/src/posix/agree.rs", "][", 2, "constants"),
    ("redrt/redrt-files/src/posix/data.rs", "bytes[", 3, "parts of the memory of the call are cut to what is moved"),
    ("redrt/redrt-files/src/posix/data.rs", "tail[", 1, "below the length"),
    ("redrt/redrt-files/src/posix/directories.rs", "buffer[", 1, "the kernel has filled so much of it"),
    ("redrt/redrt-files/src/posix/identity.rs", "handle.handle[", 1, "bounded by the length"),
    ("redrt/redrt-files/src/posix/lend.rs", ")[", 1, "constants"),
    ("redrt/redrt-files/src/posix/lend.rs", "bytes[", 1, "the kernel has filled so much of it"),
    ("redrt/redrt-files/src/posix/listing.rs", "records[", 3,
        "lengths that `DirectoryEntry::decode` has checked; what the leader lists is decoded by it"),
    ("redrt/redrt-files/src/posix/listing.rs", "self.pieces[", 1, "places of the own list"),
    ("redrt/redrt-files/src/posix/listing.rs", "bytes[", 1, "a word of a chunk"),
    ("redrt/redrt-files/src/posix/locks.rs", "owners[", 1, "its place was just found or made"),
    ("redrt/redrt-files/src/posix/open.rs", "unreachable!", 1, "the arm above has returned"),
    ("redrt/redrt-window/src/access.rs", "self.members[", 1,
        "the target of an own call, which the communicator has checked"),
    ("redrt/redrt-window/src/create.rs", "card[", 19, "arrays of constant length"),
    ("redrt/redrt-window/src/create.rs", "offsets[", 4, "one for each member: collectives bring as many"),
    ("redrt/redrt-window/src/create.rs", "cards[", 8, "one for each member: collectives bring as many"),
    ("redrt/redrt-window/src/create.rs", "][", 6, "arrays of constant length"),
    ("redrt/redrt-window/src/direct/control.rs", "assert!", 3, "r = 1 alone, and members of the communicator"),
    ("redrt/redrt-window/src/direct/mod.rs", "self.parts[", 2, "r = 1 alone, and members of the communicator"),
    ("redrt/redrt-window/src/direct/mod.rs", "self.members[", 1, "r = 1 alone, and members of the communicator"),
    ("redrt/redrt-window/src/direct/mod.rs", "self.started[", 1, "r = 1 alone, and members of the communicator"),
    ("redrt/redrt-window/src/direct/mod.rs", "self.ended[", 2, "r = 1 alone, and members of the communicator"),
    ("redrt/redrt-window/src/epoch.rs", "self.locks[", 1, "its place was just found"),
    ("redrt/redrt-window/src/lib.rs", "expect(\"a window is registered when it is made\")", 1, "own objects"),
    ("redrt/redrt-window/src/lib.rs", "expect(\"memory that is near is that of a window without messages\")", 1,
        "own objects"),
    ("redrt/redrt-window/src/order.rs", "expect(\"requests are plain data\")", 1, "own requests"),
    ("redrt/redrt-window/src/origin.rs", "self.toward[", 3, "targets of own calls, which the communicator has checked"),
    ("redrt/redrt-window/src/origin.rs", "origin.toward[", 4,
        "targets of own calls, which the communicator has checked"),
    ("redrt/redrt-window/src/origin.rs", ".toward[", 1, "targets of own calls, which the communicator has checked"),
    ("redrt/redrt-window/src/pages.rs", "cards[", 1, "one for each member: collectives bring as many"),
    ("redrt/redrt-window/src/pages.rs", "comm.members[", 1, "a communicator has its own process"),
    ("redrt/redrt-window/src/pages.rs", "self.members[", 1, "those of a communicator, which has its own process"),
    ("redrt/redrt-window/src/server.rs", "abort(", 2,
        "a message that is no request: a majority of its rank has sent it, or with two replicas a difference was told before"),
    ("redrt/redrt-window/src/server.rs", "unreachable!", 1, "`Call::can_have` refuses other outcomes of this question"),
    ("redrt/redrt-window/src/server.rs", ".completes[", 1, "the source of a received message is a member"),
    ("redrt/redrt-window/src/server.rs", "self.comm.members[", 1, "the source of a received message is a member"),
    ("redrt/redrt-window/src/synchronize.rs", "expect(\"8 bytes\")", 1, "a slice of that length"),
    ("redrt/redrt-window/src/synchronize.rs", "served.completes[", 2, "members of a group of the communicator"),
];

/// Macros that end a process, or the job.
const ENDS: [&str; 7] = ["assert!", "assert_eq!", "assert_ne!", "panic!", "unreachable!", "todo!", "unimplemented!"];

/// Expressions in a line of code that may end a process.
fn ends_in(line: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in line.match_indices(".expect(\"") {
        let words = line[at + ".expect(\"".len()..].split('"').next().unwrap_or_default();
        found.push(format!("expect(\"{words}\")"));
    }
    found.extend(line.match_indices(".unwrap()").map(|_| "unwrap()".to_owned()));
    for end in ENDS {
        let starts = line.match_indices(&format!("{end}(")).map(|(at, _)| &line[..at]).collect::<Vec<_>>();
        found.extend(starts.iter().filter(|before| !before.ends_with(is_name)).map(|_| end.to_owned()));
    }
    let aborts = line.match_indices("abort(").filter(|(at, _)| {
        !line[..*at].ends_with(is_name) && line[at + "abort(".len()..].starts_with(|c: char| c.is_ascii_digit())
    });
    found.extend(aborts.map(|_| "abort(".to_owned()));
    for (at, _) in line.match_indices('[') {
        let before = &line[..at];
        let is_index = before.ends_with(|c: char| is_name(c) || c == ')' || c == ']');
        if is_index && !line[at + 1..].starts_with(']') {
            let last = before.trim_end_matches(|c: char| is_name(c) || c == '.');
            let named = if before.ends_with([')', ']']) { &before[before.len() - 1..] } else { &before[last.len()..] };
            found.push(format!("{named}["));
        }
    }
    found
}

/// Expressions that may end a process in a file's code, its tests left out, with the number of each.
fn ends_in_file(file: &Path) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(file).expect("it can be read");
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let is_code = |line: &&str| !["//", "#[", "#!["].iter().any(|mark| line.starts_with(mark));
    let mut found = BTreeMap::new();
    for end in code.lines().map(str::trim).filter(is_code).flat_map(ends_in) {
        *found.entry(end).or_default() += 1;
    }
    found
}

#[test]
fn no_message_of_another_replica_ends_a_replica() {
    let mut files = Vec::new();
    for place in HEARING.map(|place| root().join(place)) {
        if place.is_dir() { sources(&place, &mut files) } else { files.push(place) }
    }
    let is_other = |part: std::path::Component<'_>| {
        ["tests", "tests.rs", "fuzz.rs", "sim", "scale.rs"].iter().any(|name| part.as_os_str() == *name)
    };
    let mut found = BTreeMap::new();
    for file in &files {
        let name = file.strip_prefix(root()).expect("it was found there");
        if !name.components().any(is_other) {
            let ends = ends_in_file(file).into_iter();
            found.extend(ends.map(|(what, count)| ((name.display().to_string(), what), count)));
        }
    }
    let listed: BTreeMap<_, _> =
        MAY_END.iter().map(|(file, what, count, _)| (((*file).to_owned(), (*what).to_owned()), *count)).collect();
    assert_eq!(listed.len(), MAY_END.len(), "something is listed twice");
    let new = found.iter().filter(|(end, count)| listed.get(*end) != Some(*count));
    let new = new.map(|((file, what), count)| format!("{file}: {what} {count} times, and it has no such reason"));
    let gone = listed.keys().filter(|end| !found.contains_key(*end));
    let gone = gone.map(|(file, what)| format!("{file}: {what} is not there"));
    let wrong: Vec<_> = new.chain(gone).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_way_to_end_is_found() {
    let line = "let a = self.list[at].expect(\"there\"); assert!(b[0] == c()[1]); debug_assert!(d); x.abort(1, y)";
    let found = ends_in(line);
    assert_eq!(found, ["expect(\"there\")", "assert!", "abort(", "self.list[", "b[", ")["]);
    assert!(ends_in("let [a, b]: [u8; 2] = [[0; 2]; 1].concat(); vec![1]; &[][..0]").len() <= 1);
}
