//! `redrt-chaos`: random programs with random faults over the hosts of a lab, for a given time, from a seed.
//!
//! Each rank keeps one replica, or the job has a checkpoint to go back to. So every job must end well, print the output
//! of an undisturbed run, and leave nothing behind. A job that does otherwise is printed with the seed that repeats it.

mod coordinators;
mod dress;

use clap::Parser;
use dress::{Dress, perhaps_ticking};
use redrt_tests::lab::lab;
use redrt_tests::{Disk, Ended, Job, Lab, Program, Random, Running};
use serde_json::Value;
use std::collections::HashMap;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

const HOSTS: &str = "h1,h2,h3,h4";
/// The last host is kept free for copies.
const HOSTS_AND_SPARE: &str = "h1,h2,h3,h4,h5:12";
/// Hosts on which a job from four hosts is resumed.
const ELSEWHERE: [&str; 5] = ["h1:12", "h5:12", "h3,h2", "h2:2,h5,h4", "h1,h2,h3,h4,h5"];
/// Exit code of a job that was saved and stopped.
const SAVED: i32 = 75;
/// Shorter than the detection of a silent host takes, with room for a busy machine.
const SHORT: Duration = Duration::from_millis(300);

/// File systems for the audit logs of jobs with a disk fault; each is absent, with the reason printed, where it cannot
/// be mounted. They are mounted before the lab starts: its hosts see earlier mounts only.
struct Disks {
    full: Option<Disk>,
    frozen: Option<Disk>,
}

impl Disks {
    /// Room for the first part of an audit log.
    const FULL_BYTES: usize = 16 << 10;

    fn new() -> Self {
        Self { full: Disk::small(Self::FULL_BYTES), frozen: Disk::freezable() }
    }

    fn for_fault(&mut self, fault: Fault) -> Option<&mut Disk> {
        match fault {
            Fault::FullDisk => self.full.as_mut(),
            Fault::FrozenDisk => self.frozen.as_mut(),
            _ => None,
        }
    }
}

/// After this time a job hangs: two ranks of `ticking` have needed more than 120 s beside four builds on two
/// processors.
const LIMIT: Duration = Duration::from_secs(400);

/// Longer than the detection of a silent host takes.
const LONG: Duration = Duration::from_secs(2);

/// Runs random programs with random faults on four hosts until the time is over.
#[derive(Parser)]
struct ChaosArguments {
    /// Running time in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,

    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Only the seed's job with this number.
    #[arg(long)]
    only: Option<u64>,

    /// Only jobs with this fault (Power, Elsewhere, …).
    #[arg(long)]
    fault: Option<String>,

    /// Runs of each job, each with the fault at another moment.
    #[arg(long, default_value_t = 1)]
    times: u32,

    /// Only jobs with three coordinators, any of whose hosts may be lost; otherwise every eighth job is one.
    #[arg(long)]
    coordinators: bool,
}

/// Lines of a report that are printed again after it.
const SUMMARY_LINES: usize = 4;

/// One job in this number has several coordinators.
const COORDINATORS_EVERY: u64 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// One replica is killed before one of its sends.
    Send,
    /// One or two replicas of different ranks are killed at a time.
    Process,
    /// A daemon is killed, which takes its processes with it.
    Daemon,
    /// A daemon is stopped for a moment.
    Pause,
    /// redrun is stopped for a moment.
    PauseCoordinator,
    /// A replica is stopped for a moment.
    PauseReplica,
    /// A guard is stopped, its daemon is killed, and the guard goes on when the host has been given up.
    StoppedGuard,
    /// A replica gets no more descriptors.
    Descriptors,
    /// The audit log is on a full disk.
    FullDisk,
    /// The audit log is on a file system that stands still for longer than a host may be silent.
    FrozenDisk,
    /// A host loses its power.
    Power,
    /// A host is cut off for good.
    Cut,
    /// Two hosts do not hear each other any more; all others hear both.
    Parted,
    /// A link is cut for a moment.
    Flicker,
    /// Replicas are moved.
    Migrate,
    /// A host is freed.
    Drain,
    /// Ranks get more replicas, or fewer.
    Degree,
    /// All processes of a job with checkpoints are killed.
    Everything,
    /// All replicas of a rank of such a job are killed.
    Rank,
    /// A host of such a job loses its power, and with it, at r = 1, some ranks' only replicas.
    Home,
    /// Such a job is saved and ended, and resumed on other hosts: more or fewer.
    Elsewhere,
}

impl Fault {
    const ALL: [Self; 22] = [
        Self::None,
        Self::Send,
        Self::Process,
        Self::Daemon,
        Self::Pause,
        Self::PauseCoordinator,
        Self::PauseReplica,
        Self::StoppedGuard,
        Self::Descriptors,
        Self::FullDisk,
        Self::FrozenDisk,
        Self::Power,
        Self::Cut,
        Self::Parted,
        Self::Flicker,
        Self::Migrate,
        Self::Drain,
        Self::Degree,
        Self::Everything,
        Self::Rank,
        Self::Home,
        Self::Elsewhere,
    ];

    /// True when the job takes checkpoints, and goes back to one.
    fn goes_back(self) -> bool {
        matches!(self, Self::Everything | Self::Rank | Self::Home | Self::Elsewhere)
    }

    /// True for a request to copy replicas, which is no fault.
    fn is_request(self) -> bool {
        matches!(self, Self::Migrate | Self::Drain | Self::Degree)
    }
}

/// Output and running time of undisturbed programs, by name and arguments.
#[derive(Default)]
struct UndisturbedRuns(HashMap<(&'static str, &'static [&'static str]), (String, Duration)>);

impl UndisturbedRuns {
    fn of(&mut self, program: &Program) -> &(String, Duration) {
        self.0.entry((program.name, program.arguments)).or_insert_with(|| {
            let job = Job::new(program.rank_count, &dress::binary(program)).arguments(program.arguments);
            let ended = job.limit(LIMIT).run().ended_well();
            (ended.out, ended.took)
        })
    }
}

struct Trial {
    program: Program,
    degree: u16,
    fault: Fault,
    /// True when lost replicas are replaced.
    has_spare: bool,
    fan_out: &'static str,
    /// The fault's host; redrun is on another one.
    host: &'static str,
    after: Duration,
    inject: Option<String>,
    /// True when copies stand ready to judge, remade twice a second.
    arbitrates: bool,
    dress: Dress,
    /// Hosts on which the job is resumed, for the fault `Elsewhere`.
    elsewhere: &'static str,
}

impl Trial {
    fn draw(random: &mut Random, known: &mut UndisturbedRuns) -> Self {
        let fault = *random.one_of(&Fault::ALL);
        let has_spare = fault.is_request() || random.draw().is_multiple_of(4);
        // Copies take a moment. `cg` would take minutes where twelve processes on four hosts share a few processors.
        let long: Vec<_> = Program::LONG.into_iter().filter(|program| program.name != "cg").collect();
        // An error of `open` is for the program to handle, and these do not handle it.
        let opens_files = |program: &Program| {
            ["posix", "files", "datareps", "listings", "clocks", "fortran_f08", "heat"].contains(&program.name)
        };
        let program = if has_spare { *random.one_of(&long) } else { *random.one_of(&Program::ALL) };
        let fault = if fault == Fault::Descriptors && opens_files(&program) { Fault::Process } else { fault };
        let (program, has_spare) =
            if fault.goes_back() { (*random.one_of(&long), false) } else { (program, has_spare) };
        let program = if fault == Fault::Descriptors { program } else { perhaps_ticking(random, program) };
        let dress = if fault == Fault::Descriptors { Dress::default() } else { Dress::draw(random) };
        let elsewhere = *random.one_of(&ELSEWHERE);
        let degrees: &[u16] = match fault {
            Fault::Home => &[1],
            _ if fault.goes_back() => &[1, 1, 2],
            _ if fault.is_request() => &[1, 2, 3],
            _ => &[2, 2, 3],
        };
        let degree = *random.one_of(degrees);
        let host = *random.one_of(&["h2", "h3", "h4"]);
        let fan_out = *random.one_of(&["32", "1", "2"]);
        let millis = known.of(&program).1.as_millis() as u64;
        // The moment is sometimes after the end of the job.
        let after = Duration::from_millis(random.from_one_to(if fault.is_request() { millis } else { millis * 2 }));
        let rank = random.draw() % u64::from(program.rank_count);
        let replica = random.draw() % u64::from(degree);
        let other = (rank + 1) % u64::from(program.rank_count);
        let seconds = after.as_secs_f64();
        let inject = match fault {
            Fault::Send => Some(format!("kill:{rank}.{replica}@#{}", random.from_one_to(30))),
            Fault::Process => Some(format!("kill:{rank}.{replica}@{seconds:.3}s,kill:{other}.{replica}@{seconds:.3}s")),
            _ if fault.is_request() && degree > 1 && random.draw().is_multiple_of(2) => {
                Some(format!("random:mtbf=1s,seed={}", random.from_one_to(1 << 30)))
            }
            _ => None,
        };
        let arbitrates = degree == 2 && has_spare && random.draw().is_multiple_of(2);
        Self { program, degree, fault, has_spare, fan_out, host, after, inject, arbitrates, dress, elsewhere }
    }

    fn name(&self) -> String {
        let Self { program, degree, fault, has_spare, host, after, fan_out, inject, arbitrates, .. } = self;
        let what = match fault {
            Fault::Elsewhere => format!("on {} after {after:?}", self.elsewhere),
            _ => inject.clone().unwrap_or_else(|| format!("on {host} after {after:?}")),
        };
        let dress = self.dress.name();
        let spare = if *has_spare { "a spare, " } else { "" };
        let spare = if *arbitrates { "a spare, arbitration, " } else { spare };
        format!("{} at r = {degree}, {dress}{spare}fan-out {fan_out}, {fault:?} {what}", program.name)
    }

    fn start(&self, lab: &Lab, disk: Option<&Disk>) -> Running {
        let job = self.dress.job(lab, &self.program).degree(self.degree).options(&["--fan-out", self.fan_out]);
        let job = match self.has_spare {
            true => job.options(&["--spares", "1", "--max-degree", "3"]).on_hosts(lab, HOSTS_AND_SPARE),
            false => job.on_hosts(lab, HOSTS),
        };
        let job = if self.arbitrates { job.options(&["--arbitrate=0.5"]) } else { job };
        let job = match self.fault {
            fault if fault.goes_back() => {
                let store = self.dress.store(lab);
                job.options(&["--checkpoint", "400ms", "--checkpoint-dir"]).words([store.into()])
            }
            _ => job,
        };
        let job = self.inject.iter().fold(job, |job, fault| job.inject(fault));
        let job = disk.iter().fold(job, |job, disk| job.audit_at(&disk.path("audit")));
        job.limit(LIMIT).start()
    }

    /// A third host: neither the fault's nor redrun's.
    fn neighbour(&self) -> &'static str {
        match self.host {
            "h2" => "h3",
            "h3" => "h4",
            _ => "h2",
        }
    }

    /// Sends the drawn requests. The job may be over, or there may be no room for a copy.
    fn request(&self, random: &mut Random, job: &Running) {
        match self.fault {
            Fault::Migrate => {
                for _ in 0..3 {
                    let replicas = job.replicas();
                    if !replicas.is_empty() {
                        let replica = random.one_of(&replicas).split(' ').next().expect("its name").to_owned();
                        let _ = job.redctl(&["migrate", &replica]);
                    }
                }
            }
            Fault::Drain => drop(job.redctl(&["drain", self.host])),
            Fault::Degree => {
                for _ in 0..3 {
                    let degree = random.from_one_to(3).to_string();
                    let _ = job.redctl(&["degree", &degree]);
                    sleep(Duration::from_millis(random.from_one_to(300)));
                }
            }
            _ => {}
        }
    }

    /// Once the job has a checkpoint, takes away processes or hosts so that the job must go back.
    fn lose_what_is_saved(&self, random: &mut Random, lab: &Lab, job: &Running) {
        job.wait_until("a checkpoint, or the end", |job| job.count("checkpoint") > 0 || job.has_ended());
        sleep(Duration::from_millis(random.from_one_to(500)));
        match self.fault {
            Fault::Home => return lab.cut_power(self.host),
            // The job may be over.
            Fault::Elsewhere => return drop(job.redctl(&["checkpoint", "--stop"])),
            _ => {}
        }
        let rank = random.draw() % u64::from(self.program.rank_count);
        let of_rank = format!("{rank}.");
        // A replica that is gone already went with the others.
        for replica in job.replicas() {
            let name = replica.split(' ').next().expect("its name");
            if self.fault == Fault::Everything || name.starts_with(&of_rank) {
                let _ = job.redctl(&["kill", name]);
            }
        }
    }

    fn strike(&self, random: &mut Random, lab: &Lab, job: &Running, disk: Option<&mut Disk>) {
        if matches!(self.fault, Fault::None | Fault::Send | Fault::Process) {
            return;
        }
        // Before a host has its part of the job, its loss ends the launch.
        job.wait_until("launch", |job| job.audit().iter().any(|record| record["event"] == "job-start"));
        sleep(self.after);
        let (guard, daemon) = {
            let of_redrtd = lab.processes(self.host, "redrtd");
            (of_redrtd.iter().copied().min(), of_redrtd.into_iter().max())
        };
        let replica = {
            let replicas = lab.processes_named(self.host, &self.dress.process(&self.program));
            (!replicas.is_empty()).then(|| *random.one_of(&replicas))
        };
        let send = |process: Option<i32>, signal: i32| {
            if let Some(process) = process {
                // SAFETY: - the call takes any number; the process is one of the lab's.
                unsafe { libc::kill(process, signal) };
            }
        };
        let signal = |signal: i32| send(daemon, signal);
        match self.fault {
            Fault::Daemon => signal(libc::SIGKILL),
            Fault::Pause => {
                signal(libc::SIGSTOP);
                sleep(SHORT);
                signal(libc::SIGCONT);
            }
            Fault::PauseCoordinator => job.pause(SHORT),
            Fault::PauseReplica => {
                send(replica, libc::SIGSTOP);
                sleep(3 * SHORT);
                send(replica, libc::SIGCONT);
            }
            Fault::StoppedGuard => {
                send(guard, libc::SIGSTOP);
                signal(libc::SIGKILL);
                sleep(LONG);
                send(guard, libc::SIGCONT);
            }
            Fault::Descriptors => drop(replica.map(take_descriptors)),
            Fault::FrozenDisk => {
                if let Some(disk) = disk {
                    disk.freeze();
                    sleep(LONG);
                    disk.thaw();
                }
            }
            Fault::FullDisk => {}
            Fault::Power => lab.cut_power(self.host),
            Fault::Cut => lab.cut_link(self.host),
            Fault::Parted => lab.cut_between(self.host, self.neighbour()),
            Fault::Flicker => {
                lab.cut_link(self.host);
                sleep(SHORT);
                lab.heal_link(self.host);
            }
            Fault::Everything | Fault::Rank | Fault::Home | Fault::Elsewhere => {
                self.lose_what_is_saved(random, lab, job)
            }
            Fault::Migrate | Fault::Drain | Fault::Degree => self.request(random, job),
            Fault::None | Fault::Send | Fault::Process => {}
        }
    }

    /// Runs the job with its fault. `expected`: the output of an undisturbed run.
    fn run(&self, random: &mut Random, hosts: &Lab, mut disk: Option<&mut Disk>, expected: &str) -> Outcome {
        let job = self.start(hosts, disk.as_deref());
        self.strike(random, hosts, &job, disk.as_deref_mut());
        let mut ended = job.wait();
        if self.fault == Fault::Elsewhere && ended.code == Some(SAVED) {
            let job = Job::resume(&self.dress.store(hosts)).on_hosts(hosts, self.elsewhere);
            let resumed = job.limit(LIMIT).run();
            ended.out.push_str(&resumed.out);
            ended = Ended { out: ended.out, ..resumed };
        }
        if let Some(disk) = disk {
            // The next log needs the room.
            let _ = std::fs::remove_file(disk.path("audit"));
        }
        match self.fault {
            Fault::Cut => hosts.heal_link(self.host),
            Fault::Parted => hosts.heal_between(self.host, self.neighbour()),
            _ => {}
        }
        // Shows how near other hosts came to a false detection.
        ended.err.lines().filter(|line| line.contains("stood still")).for_each(|line| eprintln!("{line}"));
        let left = hosts.left_behind(Duration::from_secs(4));
        let wrong = self.dress.wrong(hosts, &self.program, &ended.out, expected);
        self.dress.remove(hosts);
        let is_right = ended.code == Some(0) && wrong.is_none();
        // A replica that needs a descriptor in MPI_Init ends by itself, with the reason on standard error.
        let ends_alone = |loss: &Value| self.fault == Fault::Descriptors && loss["exit"]["signal"].is_null();
        let crashes = ended.crashes().into_iter().filter(|loss| !ends_alone(loss)).count();
        let is_well = is_right && left.is_empty() && crashes == 0;
        Outcome {
            wrong: (!is_well)
                .then(|| format!("left: {left:?}\n{}{ended}", wrong.map_or_else(String::new, |why| why + "\n"))),
            copies: ended.number("recovered") + ended.number("joined"),
            breaks_the_lab: matches!(self.fault, Fault::Power | Fault::Cut | Fault::Parted | Fault::Home)
                || !left.is_empty(),
        }
    }
}

/// Outcome of a job.
struct Outcome {
    /// The flaw, if there is one.
    wrong: Option<String>,
    /// Copies made during the job.
    copies: u64,
    /// True when the lab's hosts are of no further use, or not empty.
    breaks_the_lab: bool,
}

/// A job that was drawn.
enum Drawn {
    OneCoordinator(Trial),
    ThreeCoordinators(coordinators::Trial),
}

impl Drawn {
    fn draw(random: &mut Random, known: &mut UndisturbedRuns, has_three_coordinators: bool) -> Self {
        match has_three_coordinators {
            true => Self::ThreeCoordinators(coordinators::Trial::draw(random, known)),
            false => Self::OneCoordinator(Trial::draw(random, known)),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::OneCoordinator(trial) => trial.name(),
            Self::ThreeCoordinators(trial) => trial.name(),
        }
    }

    fn kind(&self) -> String {
        match self {
            Self::OneCoordinator(trial) => format!("{:?}", trial.fault),
            Self::ThreeCoordinators(_) => "Roots".into(),
        }
    }

    /// Draws other moments for the same faults.
    fn draw_moments(&mut self, random: &mut Random, known: &mut UndisturbedRuns) {
        match self {
            Self::OneCoordinator(trial) => {
                let millis = known.of(&trial.program).1.as_millis() as u64;
                trial.after = Duration::from_millis(random.from_one_to(2 * millis));
            }
            Self::ThreeCoordinators(trial) => trial.draw_moments(random, known),
        }
    }

    fn run(&self, random: &mut Random, hosts: &Lab, disks: &mut Disks, known: &mut UndisturbedRuns) -> Outcome {
        match self {
            Self::OneCoordinator(trial) => {
                let expected = known.of(&trial.program).0.clone();
                trial.run(random, hosts, disks.for_fault(trial.fault), &expected)
            }
            Self::ThreeCoordinators(trial) => trial.run(random, hosts, &known.of(trial.program()).0),
        }
    }
}

/// Leaves a replica the descriptors that it has, and no further ones. The replica may have ended.
fn take_descriptors(id: i32) {
    let is_used = |number: &u64| std::fs::symlink_metadata(format!("/proc/{id}/fd/{number}")).is_ok();
    let first_free = (0..).find(|number| !is_used(number)).expect("one is free");
    let limit = libc::rlimit { rlim_cur: first_free, rlim_max: first_free };
    // SAFETY: - `limit` is valid for the read of one limit; no old limit is written, and the process's memory is not
    //           touched.
    unsafe { libc::prlimit(id, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
}

fn main() -> ExitCode {
    let arguments = ChaosArguments::parse();
    let mut disks = Disks::new();
    let Some(mut hosts) = lab(5) else { return ExitCode::SUCCESS };
    let mut known = UndisturbedRuns::default();
    let begin = Instant::now();
    let (mut failed, mut copies, mut counts) = (0, 0, HashMap::<String, u32>::new());
    for number in 0.. {
        if begin.elapsed() > Duration::from_secs(arguments.seconds) {
            break;
        }
        if arguments.only.is_some_and(|only| number > only) {
            break;
        }
        // Each job has a seed of its own, so that one job can be repeated alone.
        let mut random = Random::new(arguments.seed.wrapping_mul(1 << 20).wrapping_add(number));
        let has_three_coordinators = arguments.coordinators || number % COORDINATORS_EVERY == COORDINATORS_EVERY - 1;
        let mut drawn = Drawn::draw(&mut random, &mut known, has_three_coordinators);
        let is_unwanted = arguments.fault.as_ref().is_some_and(|fault| *fault != drawn.kind());
        if is_unwanted || arguments.only.is_some_and(|only| number < only) {
            continue;
        }
        for time in 0..arguments.times {
            if time > 0 {
                drawn.draw_moments(&mut random, &mut known);
            }
            let name = format!("job {number} of seed {}: {}", arguments.seed, drawn.name());
            eprintln!("{name}");
            let outcome = drawn.run(&mut random, &hosts, &mut disks, &mut known);
            if let Some(wrong) = outcome.wrong {
                // The first lines again: a long report is read from its end.
                let summary: Vec<_> = wrong.lines().take(SUMMARY_LINES).collect();
                println!("WRONG: {name}; {wrong}\nThat was {name}; {}", summary.join("\n"));
                failed += 1;
            }
            *counts.entry(drawn.kind()).or_default() += 1;
            copies += outcome.copies;
            if outcome.breaks_the_lab {
                drop(hosts);
                hosts = lab(5).expect("there was one before");
            }
        }
    }
    let mut table: Vec<_> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    table.sort();
    let total: u32 = counts.values().sum();
    println!(
        "{total} jobs in {} s, seed {}: {failed} wrong, {copies} copies made; {}",
        begin.elapsed().as_secs(),
        arguments.seed,
        table.join(", ")
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
