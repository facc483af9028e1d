//! `redrt-chaos`: random programs with random faults over the hosts of a lab, for a given time, from a seed.
//!
//! Every rank keeps one replica, so every job must end well and print what it prints when it is left alone, and leave
//! nothing behind. A job that does otherwise is printed with the seed that repeats it.

use clap::Parser;
use redrt_tests::lab::lab;
use redrt_tests::{Job, Lab, Program, Random, Running};
use std::collections::HashMap;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

const HOSTS: &str = "h1,h2,h3,h4";
/// Shorter than the time after which a host is taken for dead, with room for a busy machine.
const SHORT: Duration = Duration::from_millis(300);

/// Runs random programs with random faults on four hosts until the time is over.
#[derive(Parser)]
struct Arguments {
    /// How long, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,

    /// Where everything random comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Only this job of the seed's.
    #[arg(long)]
    only: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Fault {
    None,
    /// One replica, before one of its sends.
    Send,
    /// One or two replicas of different ranks, at a time.
    Process,
    /// A daemon, which takes its processes with it.
    Daemon,
    /// A daemon is stopped for a moment.
    Pause,
    /// A host loses its power.
    Power,
    /// A host is cut off for good.
    Cut,
    /// A link is cut for a moment.
    Flicker,
}

const FAULTS: [Fault; 8] =
    [Fault::None, Fault::Send, Fault::Process, Fault::Daemon, Fault::Pause, Fault::Power, Fault::Cut, Fault::Flicker];

struct Trial {
    program: Program,
    degree: u16,
    fault: Fault,
    fan_out: &'static str,
    /// The host it happens to; never the one of redrun.
    host: &'static str,
    after: Duration,
    inject: Option<String>,
}

impl Trial {
    fn draw(random: &mut Random, took: &HashMap<&str, (String, Duration)>) -> Self {
        let program = *random.one_of(&Program::ALL);
        let degree = *random.one_of(&[2u16, 2, 3]);
        let fault = *random.one_of(&FAULTS);
        let host = *random.one_of(&["h2", "h3", "h4"]);
        let fan_out = *random.one_of(&["32", "1", "2"]);
        let millis = took[program.name].1.as_millis() as u64;
        // Sometimes too late.
        let after = Duration::from_millis(random.from_one_to(millis * 2));
        let rank = random.draw() % u64::from(program.rank_count);
        let replica = random.draw() % u64::from(degree);
        let other = (rank + 1) % u64::from(program.rank_count);
        let seconds = after.as_secs_f64();
        let inject = match fault {
            Fault::Send => Some(format!("kill:{rank}.{replica}@#{}", random.from_one_to(30))),
            Fault::Process => Some(format!("kill:{rank}.{replica}@{seconds:.3}s,kill:{other}.{replica}@{seconds:.3}s")),
            _ => None,
        };
        Self { program, degree, fault, fan_out, host, after, inject }
    }

    fn name(&self) -> String {
        let Self { program, degree, fault, host, after, fan_out, inject } = self;
        let what = inject.clone().unwrap_or_else(|| format!("on {host} after {after:?}"));
        format!("{} at r = {degree}, fan-out {fan_out}, {fault:?} {what}", program.name)
    }

    fn start(&self, lab: &Lab) -> Running {
        let job = Job::of(&self.program).degree(self.degree).on_hosts(lab, HOSTS).options(&["--fan-out", self.fan_out]);
        let job = self.inject.iter().fold(job, |job, fault| job.inject(fault));
        job.limit(Duration::from_secs(120)).start()
    }

    fn strike(&self, lab: &Lab, job: &Running) {
        if matches!(self.fault, Fault::None | Fault::Send | Fault::Process) {
            return;
        }
        // A host that is lost before it has its part of the job ends the launch.
        job.wait_until("launch", |job| job.audit().iter().any(|record| record["event"] == "job-start"));
        sleep(self.after);
        let daemon = lab.processes(self.host, "redrtd").into_iter().max();
        let signal = |signal: i32| {
            if let Some(daemon) = daemon {
                // SAFETY: - takes any number; the process is one of the lab's.
                unsafe { libc::kill(daemon, signal) };
            }
        };
        match self.fault {
            Fault::Daemon => signal(libc::SIGKILL),
            Fault::Pause => {
                signal(libc::SIGSTOP);
                sleep(SHORT);
                signal(libc::SIGCONT);
            }
            Fault::Power => lab.cut_power(self.host),
            Fault::Cut => lab.cut_link(self.host),
            Fault::Flicker => {
                lab.cut_link(self.host);
                sleep(SHORT);
                lab.heal_link(self.host);
            }
            Fault::None | Fault::Send | Fault::Process => {}
        }
    }

    /// Whether the host is of no more use.
    fn breaks_the_lab(&self) -> bool {
        matches!(self.fault, Fault::Power | Fault::Cut)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(mut hosts) = lab(4) else { return ExitCode::SUCCESS };
    let undisturbed = |program: &Program| {
        let ended = Job::of(program).degree(2).run().ended_well();
        (program.name, (ended.out, ended.took))
    };
    let known: HashMap<_, _> = Program::ALL.iter().map(undisturbed).collect();
    let begin = Instant::now();
    let (mut failed, mut counts) = (0, HashMap::<Fault, u32>::new());
    for number in 0.. {
        if begin.elapsed() > Duration::from_secs(arguments.seconds) {
            break;
        }
        if arguments.only.is_some_and(|only| number > only) {
            break;
        }
        // Each job has a seed of its own, so that one can be repeated alone.
        let mut random = Random::new(arguments.seed.wrapping_mul(1 << 20).wrapping_add(number));
        let trial = Trial::draw(&mut random, &known);
        if arguments.only.is_some_and(|only| number < only) {
            continue;
        }
        let job = trial.start(&hosts);
        trial.strike(&hosts, &job);
        let ended = job.wait();
        let cut = trial.fault == Fault::Cut;
        if cut {
            hosts.heal_link(trial.host);
        }
        let left = hosts.left_behind(Duration::from_secs(4));
        let well = ended.code == Some(0) && ended.out == known[trial.program.name].0 && left.is_empty();
        if !well {
            failed += 1;
            println!("WRONG: job {number} of seed {}: {}; left: {left:?}\n{ended}", arguments.seed, trial.name());
        }
        *counts.entry(trial.fault).or_default() += 1;
        if trial.breaks_the_lab() || !left.is_empty() {
            drop(hosts);
            hosts = lab(4).expect("there was one before");
        }
    }
    let mut table: Vec<_> = counts.iter().map(|(fault, count)| format!("{fault:?} {count}")).collect();
    table.sort();
    let total: u32 = counts.values().sum();
    println!(
        "{total} jobs in {} s, seed {}: {failed} wrong; {}",
        begin.elapsed().as_secs(),
        arguments.seed,
        table.join(", ")
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
