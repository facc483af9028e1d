//! Messages and frames that no sound process sends, and connections that break.

use super::*;
use proptest::prelude::*;
use redrt_wire::lack::Lack;

/// Lets processes refuse frames, in order. Returns the replicas that are ended, and the refusal if the job is.
fn after_refusals(degrees: &[u16], refusals: &[(&str, Option<&str>)]) -> (Vec<String>, Option<Refusal>) {
    let mut table = StepTable::new(degrees);
    let all: Vec<_> = table.manager.world().replicas().collect();
    for replica in &all {
        table.step(&format!("{replica} ready"));
    }
    let (mut retired, mut end) = (Vec::new(), None);
    for (by, peer) in refusals {
        let peer = peer.map(|peer| peer.parse().unwrap());
        let refused = FromAgent::Refused { peer, what: "sent rubbish".into() };
        table.manager.handle(table.now, Input::Agent(by.parse().unwrap(), refused));
        while let Some(output) = table.manager.poll_output() {
            match output {
                Output::Report(Report::Retired { replica, reason: RetireReason::Refused(_), .. }) => {
                    retired.push(replica.to_string());
                }
                Output::Report(Report::Ending(EndReason::Refused(refusal))) => end = Some(refusal),
                _ => {}
            }
        }
    }
    (retired, end)
}

#[test]
fn a_sender_of_rubbish_goes_if_its_rank_can_do_without_it() {
    let retired = |degrees: &[u16], refusals: &[(&str, Option<&str>)]| {
        let (retired, end) = after_refusals(degrees, refusals);
        assert_eq!(end, None);
        retired
    };
    assert_eq!(retired(&[2, 2], &[("0.0", Some("1.1"))]), ["1.1"]);
    assert_eq!(retired(&[2, 1], &[("0.0", Some("1.0"))]), ["0.0"], "the last of its rank: the other goes instead");
    assert_eq!(retired(&[2, 2], &[("0.1", None)]), ["0.1"], "who sent it is unknown");
    // A process that refuses two others is likelier to be wrong than both of them.
    assert_eq!(retired(&[3, 2, 2], &[("0.0", Some("1.1")), ("0.0", Some("2.1"))]), ["1.1", "0.0"]);
    assert_eq!(retired(&[2, 2], &[("0.0", Some("1.1")), ("0.1", Some("1.1"))]), ["1.1"], "heard once");
    // Neither rank can go on without its replica.
    let (retired, end) = after_refusals(&[1, 1], &[("0.0", Some("1.0"))]);
    let (by, peer) = (Some(ReplicaId::new(0, 0)), Some(ReplicaId::new(1, 0)));
    assert_eq!((retired, end), (Vec::new(), Some(Refusal { by, peer, what: "sent rubbish".into() })));
}

#[test]
fn what_a_job_does_not_have_is_told_once_for_each_function() {
    let mut table = StepTable::new(&[2, 2]);
    let mut told = |replica: &str, function: &str| {
        let replica = replica.parse().unwrap();
        let event = Event::Unsupported { replica, function: function.into(), why: "-r 1".into() };
        table.manager.handle(table.now, Input::Agent(replica, FromAgent::Event(event)));
        let mut count = 0;
        while let Some(output) = table.manager.poll_output() {
            count += u32::from(matches!(output, Output::Report(Report::Event(Event::Unsupported { .. }))));
        }
        count
    };
    assert_eq!(
        (told("0.0", "MPI_Comm_spawn"), told("0.1", "MPI_Comm_spawn"), told("1.0", "MPI_Comm_spawn")),
        (1, 0, 0)
    );
    assert_eq!(told("1.1", "MPI_Win_allocate_shared"), 1);
    // A corrupt process cannot fill memory, or the terminal, with names of functions that do not exist.
    let count = (0..1000).map(|number| told("1.0", &number.to_string())).sum::<u32>();
    assert!(count < 100, "{count}");
}

#[test]
fn a_replica_without_descriptors_ends_alone_beside_a_sibling() {
    for degree in [2, 1] {
        let mut table = StepTable::new(&[2, degree]);
        for replica in table.manager.world().replicas().collect::<Vec<_>>() {
            table.step(&format!("{replica} ready"));
        }
        let lack = Lack::Connection { errno: 24 };
        let it = ReplicaId::new(1, 0);
        table.manager.handle(table.now, Input::Agent(it, FromAgent::Unable(lack)));
        let outputs: Vec<_> = std::iter::from_fn(|| table.manager.poll_output()).collect();
        let ends_alone = outputs.iter().any(|output| {
            let reason = match output {
                Output::Report(Report::Retired { replica, reason, .. }) if *replica == it => reason,
                _ => return false,
            };
            *reason == RetireReason::Unable(lack)
        });
        let end = Report::Ending(EndReason::Unable { replica: it, lack });
        let ends_job = outputs.iter().any(|output| matches!(output, Output::Report(report) if *report == end));
        assert_eq!((ends_alone, ends_job), (degree == 2, degree == 1), "{outputs:?}");
    }
}

#[test]
fn a_process_that_speaks_of_strangers_is_not_believed() {
    for message in [
        FromAgent::Suspect { peer: ReplicaId::new(7, 0), host_is_silent: false },
        FromAgent::Refused { peer: Some(ReplicaId::new(0, 9)), what: String::new() },
        FromAgent::Ready(Card {
            process: redrt_types::ProcessIndex(3),
            host_number: 0,
            host: "h".into(),
            pid: 1,
            endpoints: Vec::new(),
            early_threads: Vec::new(),
        }),
        FromAgent::Event(Event::Injected {
            replica: ReplicaId::new(9, 9),
            asked: redrt_wire::fault::ProcessFault::Kill { send: 1 },
            fault: String::new(),
        }),
    ] {
        let mut table = StepTable::new(&[2, 2]);
        table.manager.handle(table.now, Input::Agent(ReplicaId::new(0, 1), FromAgent::Hello));
        table.manager.handle(table.now, Input::Agent(ReplicaId::new(0, 1), message));
        let outputs: Vec<_> = std::iter::from_fn(|| table.manager.poll_output()).collect();
        let is_kill = |output: &Output| matches!(output, Output::Send(ToDaemon::Kill(replica)) if *replica == ReplicaId::new(0, 1));
        assert!(outputs.iter().any(is_kill), "{outputs:?}");
    }
}

proptest! {
    /// Agents send any messages in any order. The replication manager goes on, and ends when all processes have.
    #[test]
    fn anything_agents_say_is_heeded_or_refused(
        degrees in proptest::collection::vec(1u16..4, 1..4),
        said in proptest::collection::vec((any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 1..40), 0u8..6), 0..40),
    ) {
        let mut manager = ReplicationManager::new(settings(&degrees));
        let all: Vec<_> = manager.world().replicas().collect();
        let mut finished = false;
        let mut now = Duration::ZERO;
        for (who, bytes, kind) in said {
            let replica = all[who.index(all.len())];
            now += Duration::from_millis(1);
            // Any bytes in the shape of a message, the variant first.
            let mut frame = (bytes.len() as u32 + 3).to_le_bytes().to_vec();
            frame.extend(redrt_wire::frame::WIRE_VERSION.to_le_bytes());
            frame.push(kind);
            frame.extend(&bytes);
            let mut reader = redrt_wire::frame::FrameReader::default();
            reader.push(&frame);
            if let Ok(Some(message)) = reader.next::<FromAgent>() {
                manager.handle(now, Input::Agent(replica, message));
            }
            while manager.poll_output().is_some() {}
        }
        for replica in all {
            manager.handle(now, Input::Exited(replica, Exit::Status(0)));
            manager.handle(now, Input::Drained(replica));
        }
        while let Some(output) = manager.poll_output() {
            finished |= matches!(output, Output::Finish(_));
        }
        prop_assert!(finished);
    }
}

#[test]
fn of_two_living_processes_with_a_broken_connection_one_goes() {
    let suspects = |table: &mut StepTable, by: &str, suspect: &str| {
        let message = FromAgent::Suspect { peer: suspect.parse().unwrap(), host_is_silent: false };
        table.manager.handle(table.now, Input::Agent(by.parse().unwrap(), message));
        while table.manager.poll_output().is_some() {}
    };
    let met = |degrees: &[u16]| {
        let mut table = StepTable::new(degrees);
        for replica in table.manager.world().replicas().collect::<Vec<_>>() {
            table.step(&format!("{replica} ready"));
        }
        table
    };
    // The suspect is ended, if its rank has another replica.
    let mut table = met(&[2, 2]);
    suspects(&mut table, "0.0", "1.1");
    assert!(!table.step("wait 1").contains("kill"));
    assert!(table.step("wait 2").contains("kill 1.1"));
    // Otherwise the process that reported it is ended.
    let mut table = met(&[2, 1]);
    suspects(&mut table, "0.1", "1.0");
    assert!(table.step("wait 2").contains("kill 0.1"));
    // Otherwise the job ends.
    let mut table = met(&[1, 1]);
    suspects(&mut table, "0.0", "1.0");
    // All processes wait for a lost message, which is no deadlock of the program.
    assert_eq!(table.step("0.0 passive 1") + &table.step("1.0 passive 1") + &table.step("1.0 passive 2"), "");
    assert!(table.step("wait 2").starts_with("ending"));
    // The death of one of the two explains the broken connection.
    let mut table = met(&[2, 2]);
    suspects(&mut table, "0.0", "1.1");
    table.step("1.1 signal 9");
    assert!(!table.step("wait 2").contains("kill"));
}

/// A job whose ranks have replicas on these hosts, all of them ready.
fn placed(hosts: &[&[u32]]) -> StepTable {
    let degrees: Vec<_> = hosts.iter().map(|hosts| hosts.len() as u16).collect();
    let mut table = StepTable::new(&degrees);
    let replicas: Vec<_> = table.manager.world().replicas().collect();
    let mut placement = vec![0; replicas.len()];
    for replica in &replicas {
        let process = table.manager.world().process(*replica);
        placement[process.0 as usize] = hosts[replica.rank.0 as usize][usize::from(replica.index.0)];
    }
    table.manager.launched_on(placement);
    for replica in replicas {
        table.step(&format!("{replica} ready"));
    }
    table
}

#[test]
fn of_two_hosts_that_do_not_hear_each_other_one_goes() {
    let say = |table: &mut StepTable, by: &str, suspect: &str| {
        let message = FromAgent::Suspect { peer: suspect.parse().unwrap(), host_is_silent: true };
        table.manager.handle(table.now, Input::Agent(by.parse().unwrap(), message));
        while table.manager.poll_output().is_some() {}
    };
    let lose = |table: &mut StepTable, replicas: &[&str]| {
        let replicas = replicas.iter().map(|replica| replica.parse().unwrap()).collect();
        let input = Input::DaemonLost { host: "lost".into(), why: "it was expelled".into(), replicas };
        table.manager.handle(table.now, input);
        while table.manager.poll_output().is_some() {}
    };
    // The host with fewer replicas goes. Processes of both hosts report the link, and the answer is the same for all.
    let mut table = placed(&[&[1, 2], &[1, 3], &[2, 3], &[1, 3]]);
    say(&mut table, "2.0", "0.0");
    say(&mut table, "0.0", "0.1");
    say(&mut table, "1.0", "2.0");
    let expelled = table.step("wait 2");
    assert_eq!(expelled.matches("expel 2, not heard by 1").count(), 3, "{expelled}");
    assert_eq!(expelled.matches("expel").count(), 3, "{expelled}");
    // The order is repeated until it is carried out, even if another host would be chosen now.
    table.step("3.0 signal 9");
    assert!(table.step("wait 2").contains("expel 2, not heard by 1"));
    lose(&mut table, &["0.1", "2.0"]);
    assert!(!table.step("wait 5").contains("expel"));
    // The host goes that the job can do without.
    let mut table = placed(&[&[1, 2], &[1, 3], &[2], &[1, 3]]);
    say(&mut table, "1.0", "2.0");
    assert!(table.step("wait 2").contains("expel 1, not heard by 2"));
    // The job can do without neither host.
    let mut table = placed(&[&[1], &[2]]);
    say(&mut table, "1.0", "0.0");
    let step = table.step("wait 2");
    assert!(step.starts_with("ending") && !step.contains("expel"), "{step}");
    // Two processes on one host with a broken connection say nothing about hosts.
    let mut table = placed(&[&[1, 2], &[1, 2]]);
    say(&mut table, "0.0", "1.0");
    let step = table.step("wait 2");
    assert!(step.contains("kill 1.0") && !step.contains("expel"), "{step}");
}
