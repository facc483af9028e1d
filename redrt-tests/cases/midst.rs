//! Copies are made while the program computes, and while processes that take part in making them die.

use crate::disturbed_for;
use redrt_tests::{Job, Random, breadth, compile};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Kills a process that may have ended already.
fn kill(id: i32) {
    // SAFETY: - a signal to another process touches no memory of this one.
    unsafe { libc::kill(id, libc::SIGKILL) };
}

/// Processes to kill while a copy is made.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Source,
    Partner,
    /// A process that sends or receives the image, or holds a replica.
    Helper,
    /// Both at once, of different ranks.
    SourceAndPartner,
}

/// A replica is lost; at a random moment of its copy, another process is killed. Each time redundancy comes back.
#[test]
fn redundancy_comes_back_after_any_loss_while_a_copy_is_made() {
    let mut random = Random::from_environment();
    let rounds = number("REDRT_ROUNDS", breadth(4, 12));
    let job = Job::new(3, &compile("until")).degree(3).environment("UNTIL_MIB", "24");
    let limit = Duration::from_secs(60 + 10 * rounds);
    let ended = disturbed_for(limit, job.options(&["--spares", "2"]), |job| {
        for round in 0..rounds {
            let victim =
                [Victim::Source, Victim::Partner, Victim::Helper, Victim::SourceAndPartner][round as usize % 4];
            let running = job.replicas();
            let lost = random.one_of(&running).split(' ').next().expect("its name").to_owned();
            let before = job.count("clone");
            job.kill_replica(&lost);
            job.wait_for("clone", before + 1);
            let clone = job.audit().into_iter().filter(|record| record["event"] == "clone").nth(before);
            let source = clone.and_then(|clone| Some(clone["source"].as_str()?.to_owned())).expect("it has a source");
            sleep(Duration::from_micros(random.from_one_to(60_000)));
            let partner = running.iter().filter_map(|one| one.split(' ').next()).find(|one| one[..1] != lost[..1]);
            let partner = partner.expect("there are other ranks");
            match victim {
                Victim::Source => kill(job.pid_of(&source)),
                Victim::Partner => kill(job.pid_of(partner)),
                Victim::Helper => kill(*random.one_of(&job.helpers())),
                Victim::SourceAndPartner => {
                    kill(job.pid_of(&source));
                    kill(job.pid_of(partner));
                }
            }
            job.wait_until(&format!("redundancy after {victim:?} in round {round}"), |job| job.replicas().len() == 9);
        }
    });
    assert!(ended.number("recovered") > rounds, "{ended}");
}

/// Rank 0 makes no MPI call for `REDRT_COMPUTE_SECONDS`, and the others wait for it: meanwhile all are copied, one
/// after another.
#[test]
fn a_rank_that_makes_no_call_is_copied() {
    let time = Duration::from_secs(number("REDRT_COMPUTE_SECONDS", 3));
    let all = [&["--spares", "1"][..], &["--spares", "1", "--transport", "tcp"]];
    for options in breadth(&all[1..], &all[..]).iter().copied() {
        let job = Job::new(3, &compile("compute")).degree(2).options(options);
        let ended = disturbed_for(time + Duration::from_secs(60), job, |job| {
            let begin = Instant::now();
            for replica in ["0.0", "0.1", "1.0", "1.1", "0.1", "2.0"] {
                let before = job.count("recovered");
                job.kill_replica(replica);
                job.wait_for("recovered", before + 1);
            }
            job.redctl(&["migrate", "0.0", "--wait"]).expect("it can be moved");
            assert_eq!(job.replicas().len(), 6);
            assert!(!job.output().contains("rank"), "it still computes: {}", job.output());
            sleep(time.saturating_sub(begin.elapsed()));
        });
        assert_eq!((ended.number("recovered"), ended.number("left")), (6, 1), "{ended}");
    }
}
