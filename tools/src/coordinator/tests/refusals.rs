//! Messages and frames that no sound process sends, and connections that break.

use super::*;
use proptest::prelude::*;

/// What the coordinator does when a process refuses a frame: the messages that follow.
fn after_refusals(degrees: &[u16], refusals: &[(&str, Option<&str>)]) -> String {
    let mut table = Table::new(degrees);
    let all: Vec<_> = table.coordinator.world().replicas().collect();
    for replica in &all {
        table.step(&format!("{replica} ready"));
    }
    let mut said = Vec::new();
    for (by, peer) in refusals {
        let peer = peer.map(|peer| peer.parse().unwrap());
        let refused = FromAgent::Refused { peer, what: "sent rubbish".into() };
        table.coordinator.handle(table.now, Input::Agent(by.parse().unwrap(), refused));
        said.extend(std::iter::from_fn(|| table.coordinator.poll_output()).filter_map(|output| match output {
            Output::Report(report @ (Report::Retired { .. } | Report::Ending(_))) => {
                Some(report.line(&|_| "h".into()).expect("it has a line").1)
            }
            _ => None,
        }));
    }
    said.join("\n")
}

#[test]
fn whoever_sends_rubbish_goes_if_its_rank_can_do_without_it() {
    let said = after_refusals(&[2, 2], &[("0.0", Some("1.1"))]);
    assert!(said.starts_with("retiring replica 1.1 on h: it sent what no sound process sends: replica 0.0"), "{said}");
    // The last of its rank: the other goes instead.
    let said = after_refusals(&[2, 1], &[("0.0", Some("1.0"))]);
    assert!(said.starts_with("retiring replica 0.0 "), "{said}");
    // Nobody can go.
    let said = after_refusals(&[1, 1], &[("0.0", Some("1.0"))]);
    assert!(
        said.contains("replica 0.0 refused a frame: replica 1.0 sent rubbish") && said.contains("ending"),
        "{said}"
    );
    // Who sent it is unknown.
    assert!(after_refusals(&[2, 2], &[("0.1", None)]).starts_with("retiring replica 0.1 "));
    // One that refuses two is likelier to be wrong than both.
    let said = after_refusals(&[3, 2, 2], &[("0.0", Some("1.1")), ("0.0", Some("2.1"))]);
    assert!(said.contains("retiring replica 1.1 ") && said.contains("retiring replica 0.0 "), "{said}");
    // Two that refuse the same are heard once.
    assert_eq!(after_refusals(&[2, 2], &[("0.0", Some("1.1")), ("0.1", Some("1.1"))]).lines().count(), 1);
}

#[test]
fn a_replica_that_lacks_descriptors_ends_alone_while_its_rank_has_another() {
    for (degree, beginning) in [(2, "retiring replica 1.0 on h: it cannot"), (1, "replica 1.0 on h cannot")] {
        let mut table = Table::new(&[2, degree]);
        for replica in table.coordinator.world().replicas().collect::<Vec<_>>() {
            table.step(&format!("{replica} ready"));
        }
        let unable = FromAgent::Unable { why: "cannot connect: Too many open files".into() };
        table.coordinator.handle(table.now, Input::Agent("1.0".parse().unwrap(), unable));
        let outputs: Vec<_> = std::iter::from_fn(|| table.coordinator.poll_output()).collect();
        let lines = outputs.iter().filter_map(|output| match output {
            Output::Report(report) => Some(report.line(&|_| "h".into())?.1),
            _ => None,
        });
        let lines: Vec<_> = lines.collect();
        assert!(lines.len() == 1 && lines[0].starts_with(beginning), "{lines:?}");
    }
}

#[test]
fn a_process_that_speaks_of_strangers_is_not_believed() {
    for message in [
        FromAgent::Suspect(ReplicaId::new(7, 0)),
        FromAgent::Refused { peer: Some(ReplicaId::new(0, 9)), what: String::new() },
        FromAgent::Ready(Card {
            process: redrt_types::ProcessIndex(3),
            host_number: 0,
            host: "h".into(),
            pid: 1,
            data: None,
        }),
        FromAgent::Event(Event::Injected {
            replica: ReplicaId::new(9, 9),
            asked: redrt_wire::control::ProcessFault::Kill { send: 1 },
            fault: String::new(),
        }),
    ] {
        let mut table = Table::new(&[2, 2]);
        table.coordinator.handle(table.now, Input::Agent(ReplicaId::new(0, 1), FromAgent::Hello));
        table.coordinator.handle(table.now, Input::Agent(ReplicaId::new(0, 1), message));
        let outputs: Vec<_> = std::iter::from_fn(|| table.coordinator.poll_output()).collect();
        let is_kill = |output: &Output| matches!(output, Output::Send(ToDaemon::Kill(replica)) if *replica == ReplicaId::new(0, 1));
        assert!(outputs.iter().any(is_kill), "{outputs:?}");
    }
}

proptest! {
    /// Agents say anything in any order: the coordinator goes on, and ends when all processes have.
    #[test]
    fn anything_agents_say_is_heeded_or_refused(
        degrees in proptest::collection::vec(1u16..4, 1..4),
        said in proptest::collection::vec((any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 1..40), 0u8..6), 0..40),
    ) {
        let mut coordinator = Coordinator::new(settings(&degrees));
        let all: Vec<_> = coordinator.world().replicas().collect();
        let mut finished = false;
        let mut now = Duration::ZERO;
        for (who, bytes, kind) in said {
            let replica = all[who.index(all.len())];
            now += Duration::from_millis(1);
            // Any bytes in the shape of a message: variant first.
            let mut frame = (bytes.len() as u32 + 3).to_le_bytes().to_vec();
            frame.extend(redrt_wire::frame::WIRE_VERSION.to_le_bytes());
            frame.push(kind);
            frame.extend(&bytes);
            let mut reader = redrt_wire::frame::FrameReader::default();
            reader.push(&frame);
            if let Ok(Some(message)) = reader.next::<FromAgent>() {
                coordinator.handle(now, Input::Agent(replica, message));
            }
            while let Some(output) = coordinator.poll_output() {
                if let Output::Report(report) = output {
                    let _ = report.record(&|_| "h".into());
                    let _ = report.line(&|_| "h".into());
                }
            }
        }
        for replica in all {
            coordinator.handle(now, Input::Exited(replica, Exit::Status(0)));
            coordinator.handle(now, Input::Drained(replica));
        }
        while let Some(output) = coordinator.poll_output() {
            finished |= matches!(output, Output::Finish(_));
        }
        prop_assert!(finished);
    }
}

#[test]
fn of_two_living_processes_with_a_broken_connection_one_goes() {
    let suspects = |table: &mut Table, by: &str, suspect: &str| {
        let message = FromAgent::Suspect(suspect.parse().unwrap());
        table.coordinator.handle(table.now, Input::Agent(by.parse().unwrap(), message));
        while table.coordinator.poll_output().is_some() {}
    };
    let met = |degrees: &[u16]| {
        let mut table = Table::new(degrees);
        for replica in table.coordinator.world().replicas().collect::<Vec<_>>() {
            table.step(&format!("{replica} ready"));
        }
        table
    };
    // The suspect goes, if its rank has another.
    let mut table = met(&[2, 2]);
    suspects(&mut table, "0.0", "1.1");
    assert!(!table.step("wait 1").contains("kill"));
    assert!(table.step("wait 2").contains("kill 1.1"));
    // Else the one that says so.
    let mut table = met(&[2, 1]);
    suspects(&mut table, "0.1", "1.0");
    assert!(table.step("wait 2").contains("kill 0.1"));
    // Else the job ends.
    let mut table = met(&[1, 1]);
    suspects(&mut table, "0.0", "1.0");
    // All wait for what was lost: that is no deadlock of the program.
    assert_eq!(table.step("0.0 passive 1") + &table.step("1.0 passive 1") + &table.step("1.0 passive 2"), "");
    assert!(table.step("wait 2").starts_with("ending"));
    // One that has died meanwhile was why.
    let mut table = met(&[2, 2]);
    suspects(&mut table, "0.0", "1.1");
    table.step("1.1 signal 9");
    assert!(!table.step("wait 2").contains("kill"));
}
