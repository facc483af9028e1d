//! Campaigns: many jobs, each with one fault at a moment drawn from a seed, and the outcome of each.
//!
//! A kill must not change a program's output. A flip must be reported against the right replica, and at r ≥ 3
//! change nothing either. A reset connection must cost nobody. Every job that does otherwise is kept with the command
//! that repeats it.

use crate::alone::{Alone, Way};
use crate::programs::Program;
use crate::{Ended, Random};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Faults that campaigns inject.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultKind {
    /// A replica is killed before one of its sends.
    Kill,
    /// A replica is killed at a time.
    KillAtTime,
    /// One bit of a payload changes in the memory of a replica.
    Flip,
    /// One bit of a payload changes in flight.
    Wire,
    /// Connections of a replica with others are reset, before several of its sends.
    Reset,
}

/// A campaign's jobs: all combinations of these.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kinds of faults, in turn.
    pub kinds: Vec<FaultKind>,
    /// Programs, each run at every degree and over every transport.
    pub programs: Vec<Program>,
    /// Degrees of replication.
    pub degrees: Vec<u16>,
    /// Transports.
    pub transports: Vec<String>,
    /// Further options of redrun.
    pub options: Vec<String>,
    /// Jobs for each replica.
    pub moment_count: u32,
    /// Seed that all moments are drawn from.
    pub seed: u64,
    /// Number of jobs of the plan to run, evenly spread; all if absent.
    pub sample: Option<usize>,
    /// Jobs at once.
    pub parallel: usize,
    /// Time after which a job counts as hung.
    pub limit: Duration,
}

/// Outcome of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// The job did as it should.
    Right,
    /// The job did as it should, but the moment never came: the replica makes fewer sends, or the send has no payload.
    NotInjected,
    /// The job did not end in time.
    Hung,
    /// The job ended with another exit code or another output.
    Wrong,
    /// A corruption was not reported.
    Silent,
    /// A report names a fault that was not injected, or another replica.
    FalseReport,
    /// Processes or shared memory were left behind.
    LeftBehind,
}

impl Outcome {
    /// All outcomes, in the order of the table's columns.
    pub const ALL: [Self; 7] =
        [Self::Right, Self::NotInjected, Self::Hung, Self::Wrong, Self::Silent, Self::FalseReport, Self::LeftBehind];

    /// Heading of the outcome's column.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::NotInjected => "not injected",
            Self::Hung => "hung",
            Self::Wrong => "wrong",
            Self::Silent => "silent",
            Self::FalseReport => "false report",
            Self::LeftBehind => "left behind",
        }
    }

    /// True when the job did as it should.
    #[must_use]
    pub fn is_right(self) -> bool {
        matches!(self, Self::Right | Self::NotInjected)
    }
}

/// One job of a campaign.
#[derive(Clone, Debug)]
struct Trial {
    program: Program,
    degree: u16,
    transport: String,
    kind: FaultKind,
    rank: u64,
    replica: u16,
    fault: String,
    /// True when receives complete before their verdicts.
    deferred: bool,
}

/// A row of the table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row {
    /// The program.
    pub program: &'static str,
    /// Kind of the injected fault.
    pub kind: FaultKind,
    /// The degree.
    pub degree: u16,
    /// The transport.
    pub transport: String,
}

/// Results of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Number of jobs by row and outcome.
    pub rows: BTreeMap<Row, BTreeMap<Outcome, u32>>,
    /// Replicas that were lost.
    pub lost: u64,
    /// Replicas that copies replaced.
    pub recovered: u64,
    /// The jobs with a wrong outcome.
    pub failures: Vec<(Outcome, String, Ended)>,
}

/// A replica of a program, and the number of the job among those that inject into this replica.
#[derive(Clone, Copy)]
struct Place<'a> {
    program: Program,
    degree: u16,
    transport: &'a str,
    rank: u32,
    replica: u16,
    moment: u32,
}

impl Plan {
    /// Runs the campaign. `tell` is called after every job with the number of jobs that are done, and of all.
    pub fn run(&self, tell: &(dyn Fn(usize, usize) + Sync)) -> Findings {
        let trials = self.trials();
        let count = trials.len();
        let waiting = Mutex::new(trials.into_iter().collect::<VecDeque<_>>());
        let findings = Mutex::new(Findings::default());
        let next = || lock(&waiting).pop_front();
        let work = || {
            while let Some((trial, known)) = next() {
                let ended = self.way(&trial.program, trial.degree, &trial.transport).job().inject(&trial.fault).run();
                let (outcome, why) = judge(&trial, &ended, &known.out);
                lock(&findings).count(&trial, outcome, why, ended);
                tell(count - lock(&waiting).len(), count);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.parallel.max(1) {
                scope.spawn(work);
            }
        });
        findings.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn way<'a>(&'a self, program: &'a Program, degree: u16, transport: &'a str) -> Way<'a> {
        Way { program, degree, transport, options: &self.options, limit: self.limit }
    }

    /// The jobs to run, each with the undisturbed run of its program. Programs of no job are not run.
    fn trials(&self) -> Vec<(Trial, Arc<Alone>)> {
        let mut random = Random::new(self.seed);
        let places = self.sampled(self.places(), &mut random);
        let trial = |place: Place<'_>| {
            let known = self.way(&place.program, place.degree, place.transport).alone();
            (self.draw(place, &known, &mut random), known)
        };
        places.into_iter().map(trial).collect()
    }

    fn places(&self) -> Vec<Place<'_>> {
        let mut places = Vec::new();
        for program in &self.programs {
            for (degree, transport) in
                self.degrees.iter().flat_map(|degree| self.transports.iter().map(move |one| (degree, one)))
            {
                for (rank, replica) in
                    (0..program.rank_count).flat_map(|rank| (0..*degree).map(move |replica| (rank, replica)))
                {
                    let place = |moment| Place { program: *program, degree: *degree, transport, rank, replica, moment };
                    places.extend((0..self.moment_count).map(place));
                }
            }
        }
        places
    }

    fn draw(&self, place: Place<'_>, known: &Alone, random: &mut Random) -> Trial {
        let Place { program, degree, transport, rank, replica, moment } = place;
        let kind = self.kinds[moment as usize % self.kinds.len()];
        let send = random.from_one_to(known.sends[rank as usize]);
        let fault = match kind {
            FaultKind::Kill => format!("kill:{rank}.{replica}@#{send}"),
            FaultKind::KillAtTime => {
                let millis = random.from_one_to(known.took.as_millis() as u64);
                format!("kill:{rank}.{replica}@{:.3}s", millis as f64 / 1000.0)
            }
            FaultKind::Flip => format!("flip:{rank}.{replica}@#{send}"),
            FaultKind::Wire => format!("wire:{rank}.{replica}@#{send}"),
            FaultKind::Reset => resets(program.rank_count, degree, (rank, replica), known, random),
        };
        let deferred = self.options.iter().any(|option| option == "deferred");
        Trial { program, degree, transport: transport.to_owned(), kind, rank: rank.into(), replica, fault, deferred }
    }

    /// Of all places the sample's number, drawn so that every row keeps its share.
    fn sampled<'a>(&self, places: Vec<Place<'a>>, random: &mut Random) -> Vec<Place<'a>> {
        let Some(sample) = self.sample.filter(|sample| *sample < places.len()) else { return places };
        let total = places.len();
        let drawn = |number| {
            let (from, to) = (number * total / sample, (number + 1) * total / sample);
            places[from + (random.draw() % (to - from) as u64) as usize]
        };
        (0..sample).map(drawn).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Value of `--inject` that resets a replica's connections with others before three of its sends.
fn resets(rank_count: u32, degree: u16, (rank, replica): (u32, u16), known: &Alone, random: &mut Random) -> String {
    let mut faults = Vec::new();
    while faults.len() < 3 {
        let peer = (random.draw() % u64::from(rank_count), random.draw() % u64::from(degree));
        if peer != (rank.into(), replica.into()) {
            let send = random.from_one_to(known.sends[rank as usize]);
            faults.push(format!("reset:{rank}.{replica}-{}.{}@#{send}", peer.0, peer.1));
        }
    }
    faults.join(",")
}

/// Outcome of a job, with the reason when it is wrong.
fn judge(trial: &Trial, ended: &Ended, out: &str) -> (Outcome, String) {
    let bad = |outcome, why: &str| (outcome, why.to_owned());
    if ended.hung() {
        return bad(Outcome::Hung, "did not end");
    }
    if !ended.left.is_empty() {
        return (Outcome::LeftBehind, ended.left.join(", "));
    }
    let injected = ended.number("injected") > 0;
    if trial.kind == FaultKind::Reset && ended.summary["lost"].as_array().is_none_or(|lost| !lost.is_empty()) {
        return bad(Outcome::Wrong, "a replica was lost");
    }
    let outcome = match trial.kind {
        FaultKind::Flip if injected => judge_flip(trial, ended),
        FaultKind::Wire if injected => judge_wire(trial, ended),
        _ if ["mismatches", "output_mismatches", "divergences"].iter().any(|name| ended.number(name) > 0) => {
            Err((Outcome::FalseReport, "a report without a flip".into()))
        }
        _ => Ok(()),
    };
    if let Err(wrong) = outcome {
        return wrong;
    }
    // At r = 2 the wrong replica cannot be named: the program goes on with the message it has.
    let decidable = trial.kind != FaultKind::Flip || trial.degree > 2 || !injected;
    if decidable && ended.code != Some(0) {
        return (Outcome::Wrong, format!("exit code {:?}", ended.code));
    }
    if decidable && ended.out != out {
        return bad(Outcome::Wrong, "another output");
    }
    if injected { (Outcome::Right, String::new()) } else { (Outcome::NotInjected, String::new()) }
}

type Judgement = Result<(), (Outcome, String)>;

fn judge_flip(trial: &Trial, ended: &Ended) -> Judgement {
    let mismatches = ended.mismatches();
    let culprit = format!("{}.{}", trial.rank, trial.replica);
    if mismatches.is_empty() {
        // The replica's own checks may end it before the vote on its message is counted; the vote names it all the
        // same.
        let retired = ended.retired();
        let named = trial.degree > 2 && !retired.is_empty() && retired.iter().all(|replica| *replica == culprit);
        return if named { Ok(()) } else { Err((Outcome::Silent, "the flip is not reported".into())) };
    }
    if trial.degree == 2 {
        // Further mismatches follow from the flip; reports of different processes may overtake each other.
        let right = |mismatch: &crate::Mismatch| {
            mismatch.sender == trial.rank && mismatch.finding == "undecidable" && mismatch.voters.contains(&culprit)
        };
        let reported = mismatches.iter().any(right);
        return if reported { Ok(()) } else { Err((Outcome::FalseReport, format!("reported: {:?}", mismatches[0]))) };
    }
    let named = |mismatch: &&crate::Mismatch| mismatch.culprit.as_ref() == Some(&culprit);
    if trial.deferred {
        // A message used before its verdict has corrupted the whole plane, so a report against the plane is right.
        let found = mismatches.iter().any(|mismatch| named(&mismatch));
        return if found { Ok(()) } else { Err((Outcome::FalseReport, format!("reported: {:?}", mismatches[0]))) };
    }
    match mismatches.iter().find(|mismatch| !named(mismatch)) {
        Some(other) => Err((Outcome::FalseReport, format!("reported: {other:?}"))),
        None => Ok(()),
    }
}

fn judge_wire(trial: &Trial, ended: &Ended) -> Judgement {
    let mismatches = ended.mismatches();
    if mismatches.is_empty() {
        return Err((Outcome::Silent, "the flip is not reported".into()));
    }
    let right = |mismatch: &&crate::Mismatch| {
        mismatch.sender == trial.rank && mismatch.finding == "transport-corrupt" && mismatch.action == "refetched"
    };
    match mismatches.iter().find(|mismatch| !right(mismatch)) {
        Some(other) => Err((Outcome::FalseReport, format!("reported: {other:?}"))),
        None => Ok(()),
    }
}

impl Findings {
    fn count(&mut self, trial: &Trial, outcome: Outcome, why: String, ended: Ended) {
        let (program, transport) = (trial.program.name, trial.transport.clone());
        let row = Row { program, kind: trial.kind, degree: trial.degree, transport };
        self.lost += ended.summary["lost"].as_array().map_or(0, Vec::len) as u64;
        self.recovered += ended.number("recovered");
        *self.rows.entry(row).or_default().entry(outcome).or_default() += 1;
        if !outcome.is_right() {
            self.failures.push((outcome, why, ended));
        }
    }

    /// Jobs with this outcome.
    #[must_use]
    pub fn total(&self, outcome: Outcome) -> u32 {
        self.rows.values().filter_map(|row| row.get(&outcome)).sum()
    }

    /// Markdown table with a row for each combination, and a last one for all.
    #[must_use]
    pub fn table(&self) -> String {
        let heading = |outcome: Outcome| format!("{:>14}", outcome.heading());
        let headings: String = Outcome::ALL.into_iter().map(heading).collect();
        let mut table = format!("{:<14} {:<12} r  {:<4} {:>6}{headings}\n", "program", "fault", "over", "jobs");
        let mut line = |first: String, number: &dyn Fn(Outcome) -> u32| {
            let all: u32 = Outcome::ALL.into_iter().map(number).sum();
            let numbers: String = Outcome::ALL.into_iter().map(|one| format!("{:>14}", number(one))).collect();
            table += &format!("{first:<35} {all:>6}{numbers}\n");
        };
        for (row, counts) in &self.rows {
            let kind = format!("{:?}", row.kind);
            let first = format!("{:<14} {kind:<12} {}  {:<4}", row.program, row.degree, row.transport);
            line(first, &|outcome| counts.get(&outcome).copied().unwrap_or_default());
        }
        line("all".into(), &|outcome| self.total(outcome));
        table
    }

    /// A few lines for each job with a wrong outcome, the command first.
    #[must_use]
    pub fn failures_text(&self) -> String {
        let one = |(outcome, why, ended): &(Outcome, String, Ended)| {
            format!("{}: {why} (exit code {:?})\n  {}\n", outcome.heading(), ended.code, ended.command)
        };
        self.failures.iter().map(one).collect()
    }

    /// Fails when anything went wrong.
    #[track_caller]
    pub fn assert_right(&self) {
        println!("{}", self.table());
        let Some((_, _, first)) = self.failures.first() else { return };
        panic!("{}\nThe first of them:\n{first}", self.failures_text());
    }
}
