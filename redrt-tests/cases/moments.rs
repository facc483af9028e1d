//! Jobs with losses at moments drawn from a seed, for each program and at each degree: of all processes, of one rank,
//! or of the whole job with its `redrun`. Output and files must be as without losses. Here are a few;
//! `scripts/checkpoint-campaign.sh` runs many.

use crate::checkpoints::{LIMIT, resume, saved, store};
use crate::posix::content;
use redrt_tests::{Ended, Job, Program, Random, Running};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The argument that stands for the directory of a program's files.
const DIRECTORY: &str = "DIRECTORY";
/// Mark of the argument that sets a program's running time.
const COUNT: char = '#';
/// Running time of a campaign's program after its first checkpoint.
const TIME: Duration = Duration::from_millis(800);
/// Tries to adjust the argument to that time.
const TRIES: usize = 4;
/// Limit on the draws for each loss: some moments come too late.
const DRAWS_EACH: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Lost {
    /// The program ended first.
    Nothing,
    Processes,
    Rank,
    Redrun,
}

/// Contents of a job's files, by name.
type Files = BTreeMap<String, Vec<u8>>;

/// A program with its output and files of an undisturbed run.
struct Alone {
    program: Program,
    arguments: Vec<String>,
    out: String,
    files: Files,
}

/// The program, with its files in a new directory.
fn job(program: &Program, arguments: &[String]) -> (Job, TempDir) {
    let files = store();
    let place = files.path().display().to_string();
    let arguments: Vec<_> = arguments.iter().map(|word| word.replace(DIRECTORY, &place)).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let job = Job::of(&Program { arguments: &[], ..*program }).arguments(&arguments).limit(LIMIT);
    (job, files)
}

impl Alone {
    /// Runs the program `scale` times as long as the marked argument says.
    fn of(program: Program, scale: f64) -> Self {
        let scaled = |word: &&str| match word.strip_prefix(COUNT) {
            Some(count) => ((count.parse::<f64>().expect("a number") * scale).ceil() as u64).to_string(),
            None => (*word).to_owned(),
        };
        let arguments: Vec<_> = program.arguments.iter().map(scaled).collect();
        let (job, files) = job(&program, &arguments);
        let ended = job.run().ended_well();
        Self { program, arguments, out: ended.out, files: content(files.path()) }
    }

    /// A run of about [`TIME`] after its first checkpoint at this degree, with the actual time. On a busy machine a try
    /// may be far off: the nearest one is taken.
    fn of_time(program: Program, degree: u16) -> (Self, Duration) {
        let ratio = |lasted: Duration| TIME.as_secs_f64() / lasted.as_secs_f64().max(1e-3);
        let distance = |lasted| ratio(lasted).ln().abs();
        let attempt = |scale| {
            let alone = Self::of(program, scale);
            let lasted = last(&alone, degree);
            (alone, lasted)
        };
        let mut scale = 1.0;
        let mut nearest = attempt(scale);
        let mut lasted = nearest.1;
        for _ in 1..TRIES {
            if distance(lasted) < 2_f64.ln() {
                break;
            }
            scale *= ratio(lasted).clamp(0.1, 6.0);
            let next = attempt(scale);
            lasted = next.1;
            if distance(lasted) < distance(nearest.1) {
                nearest = next;
            }
        }
        nearest
    }

    /// The output's lines. In `threads` ranks print in any order.
    fn sorted<'a>(&self, out: &'a str) -> Vec<&'a str> {
        let mut lines: Vec<_> = out.split_inclusive('\n').collect();
        if self.program.name == "threads" {
            lines.sort_unstable();
        }
        lines
    }

    fn is_right(&self, what: &str, ended: &Ended, files: &TempDir) {
        assert!(self.sorted(&ended.out) == self.sorted(&self.out), "{what}: {ended}\nalone:\n{}", self.out);
        self.has_files(what, ended, files);
    }

    fn has_files(&self, what: &str, ended: &Ended, files: &TempDir) {
        let (left, own) = (content(files.path()), &self.files);
        let differs = |name: &&String| left.get(*name) != own.get(*name);
        let names: Vec<_> = left.keys().chain(own.keys()).filter(differs).collect();
        assert!(names.is_empty(), "{what}: other files than alone: {names:?}: {ended}");
    }

    /// Lines shown after the checkpoint come again, and no other lines.
    fn is_right_in_two(&self, what: &str, begun: &Ended, ended: &Ended, files: &TempDir) {
        let whole = self.sorted(&self.out);
        let (first, second) = (self.sorted(&begun.out), self.sorted(&ended.out));
        let is_right = match self.program.name {
            "threads" => first.iter().chain(&second).all(|line| whole.contains(line)),
            _ => whole.starts_with(&first) && whole.ends_with(&second),
        };
        let is_whole = first.len() + second.len() >= whole.len();
        assert!(is_right && is_whole, "{what}: before {begun} and then {ended}\nalone:\n{}", self.out);
        self.has_files(what, ended, files);
    }
}

fn kill_all(job: &Running, of_rank: Option<u32>) {
    let running = job.replicas();
    let names = running.iter().filter_map(|one| one.split(' ').next());
    let is_its = |name: &&str| of_rank.is_none_or(|rank| name.starts_with(&format!("{rank}.")));
    let ids: Vec<_> = names.filter(is_its).map(|replica| job.pid_of(replica)).collect();
    // SAFETY: - a signal to another process touches no memory of this one.
    ids.into_iter().for_each(|id| _ = unsafe { libc::kill(id, libc::SIGKILL) });
}

/// Starts the job and waits for its first checkpoint.
fn begin(alone: &Alone, degree: u16, store: &TempDir) -> (Running, TempDir) {
    let (job, files) = job(&alone.program, &alone.arguments);
    let job = saved(job.degree(degree), "50ms", store).start();
    job.wait_until("a checkpoint, or the end", |job| job.count("checkpoint") > 0 || job.has_ended());
    (job, files)
}

/// Running time after the first checkpoint of an undisturbed job.
fn last(alone: &Alone, degree: u16) -> Duration {
    let store = store();
    let (job, files) = begin(alone, degree, &store);
    let begun = Instant::now();
    job.wait_until("its end", Running::has_ended);
    let lasted = begun.elapsed();
    alone.is_right("left alone", &job.wait().ended_well(), &files);
    lasted
}

/// Runs the job and causes a loss at a moment within that time.
fn disturb(alone: &Alone, degree: u16, time: Duration, random: &mut Random) -> Lost {
    let (store, program) = (store(), &alone.program);
    let lost = *random.one_of(&[Lost::Processes, Lost::Rank, Lost::Redrun]);
    let moment = Duration::from_micros(random.from_one_to(time.as_micros() as u64));
    let rank = random.from_one_to(program.rank_count.into()) as u32 - 1;
    let (job, files) = begin(alone, degree, &store);
    std::thread::sleep(moment);
    let lost = if job.has_ended() || job.count("checkpoint") == 0 { Lost::Nothing } else { lost };
    let what = format!("{} at r = {degree}, {lost:?} lost after {moment:?}", program.name);
    match lost {
        Lost::Nothing => {}
        Lost::Processes => kill_all(&job, None),
        Lost::Rank => kill_all(&job, Some(rank)),
        Lost::Redrun => {
            job.signal(libc::SIGKILL);
            let begun = job.wait();
            if begun.code == Some(0) {
                return Lost::Nothing;
            }
            let ended = resume(store.path()).run().ended_well();
            alone.is_right_in_two(&what, &begun, &ended, &files);
            return lost;
        }
    }
    let ended = job.wait().ended_well();
    alone.is_right(&what, &ended, &files);
    // Without a return the job had ended before the signals came.
    if ended.events("went-back").count() > 0 { lost } else { Lost::Nothing }
}

#[test]
#[ignore = "scripts/test.sh --all: each program is lost once, which is a part of scripts/checkpoint-campaign.sh"]
fn programs_that_are_lost_at_any_moment_print_the_same() {
    if std::env::var_os("REDRT_MOMENTS").is_some() {
        return campaign();
    }
    let mut random = Random::from_environment();
    let mut counts = BTreeMap::<Lost, usize>::new();
    for program in Program::ALL {
        let alone = Alone::of(program, 1.0);
        let degree = *random.one_of(&[1, 2, 3]);
        *counts.entry(disturb(&alone, degree, Duration::from_millis(50), &mut random)).or_default() += 1;
    }
    println!("{counts:?}");
    assert!(counts.keys().any(|lost| *lost != Lost::Nothing), "{counts:?}");
}

/// A program at a degree.
struct Row {
    degree: u16,
    lasted: Duration,
    losses: BTreeMap<Lost, usize>,
    mismatches: usize,
}

impl Row {
    fn lost(&self) -> usize {
        self.losses.iter().filter(|(lost, _)| **lost != Lost::Nothing).map(|(_, count)| count).sum()
    }

    fn run(program: Program, degree: u16, wanted: usize, mut random: Random) -> Self {
        let mut row = Self { degree, lasted: Duration::ZERO, losses: BTreeMap::new(), mismatches: 0 };
        let Ok((alone, lasted)) = catch_unwind(|| Alone::of_time(program, degree)) else {
            row.mismatches = 1;
            return row;
        };
        row.lasted = lasted;
        for _ in 0..DRAWS_EACH * wanted {
            if row.lost() + row.mismatches >= wanted {
                break;
            }
            // A mismatch prints its own report, and the remaining draws go on.
            match catch_unwind(AssertUnwindSafe(|| disturb(&alone, degree, row.lasted, &mut random))) {
                Ok(lost) => *row.losses.entry(lost).or_default() += 1,
                Err(_) => row.mismatches += 1,
            }
        }
        row
    }

    fn line(&self, program: &str) -> String {
        let count = |lost| self.losses.get(&lost).copied().unwrap_or_default();
        let [processes, rank, redrun] = [Lost::Processes, Lost::Rank, Lost::Redrun].map(count);
        format!(
            "{program:<17} {:>2} {:>7.2} {:>7} {processes:>10} {rank:>5} {redrun:>7} {:>11}",
            self.degree,
            self.lasted.as_secs_f64(),
            self.lost(),
            self.mismatches
        )
    }
}

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Runs each program at each degree, with this number of losses.
fn campaign() {
    let (wanted, seed) = (number("REDRT_MOMENTS").unwrap_or(1), number("REDRT_SEED").unwrap_or(1) as u64);
    let mut programs = Program::LASTING.to_vec();
    if let Ok(names) = std::env::var("REDRT_PROGRAMS") {
        programs.retain(|program| names.split_ascii_whitespace().any(|name| name == program.name));
    }
    println!(
        "{:<17} {:>2} {:>7} {:>7} {:>10} {:>5} {:>7} {:>11}",
        "program", "r", "seconds", "losses", "processes", "rank", "redrun", "mismatches"
    );
    let waiting: Mutex<VecDeque<_>> = Mutex::new(programs.into_iter().enumerate().collect());
    let short = Mutex::new(Vec::new());
    let next = || waiting.lock().expect("nobody has failed with it").pop_front();
    let work = || {
        while let Some((place, program)) = next() {
            for degree in [1, 2, 3] {
                let random = Random::new((seed << 16) + ((place as u64) << 2) + u64::from(degree));
                let row = Row::run(program, degree, wanted, random);
                println!("{}", row.line(program.name));
                if row.mismatches > 0 || row.lost() < wanted {
                    short.lock().expect("nobody has failed with it").push(format!("{} at r = {degree}", program.name));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..number("REDRT_PARALLEL").unwrap_or(1) {
            scope.spawn(work);
        }
    });
    let short = short.into_inner().expect("nobody has failed with it");
    assert!(short.is_empty(), "mismatches, or fewer losses than {wanted}: {short:?}");
}
