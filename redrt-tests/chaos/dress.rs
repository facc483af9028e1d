//! Surroundings of a job: a program whose text depends on the clock, standard streams that are files, and names that
//! are no text.
//!
//! In each of them a program prints the same. Lines that depend on the clock have a check of their own: each is whole
//! and none is missing. After a return a line may be there twice, with another time.

use redrt_tests::{Job, Lab, Program, Random, compile, compile_case};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

const ROUNDS: usize = 8000;

/// The program whose text depends on the clock.
pub const TICKING: Program = Program { name: "ticking", arguments: &["8000"], rank_count: 3 };

/// A name that is not UTF-8.
const ODD: &[u8] = b"d\xfcr \xe2\x82";
/// One program in this number is `TICKING`.
const TICKING_EVERY: u64 = 5;
/// One job in this number has its standard streams in files, and one has names that are no text.
const DRESSED_EVERY: u64 = 3;

/// A shell that puts files behind the standard streams of each rank.
const REDIRECTED: &str = r#"exec "$@" <"$0.in" >"$0.$REDRT_RANK""#;

/// Path of the compiled program.
pub fn binary(program: &Program) -> PathBuf {
    if *program == TICKING { compile_case(program.name) } else { compile(program.name) }
}

/// The program itself, or now and then `TICKING` in its place.
pub fn perhaps_ticking(random: &mut Random, program: Program) -> Program {
    if random.draw().is_multiple_of(TICKING_EVERY) { TICKING } else { program }
}

/// The surroundings of one job.
#[derive(Clone, Copy, Default)]
pub struct Dress {
    redirects: bool,
    is_odd: bool,
}

impl Dress {
    /// Draws the surroundings of a job.
    pub fn draw(random: &mut Random) -> Self {
        let mut is_so = || random.draw().is_multiple_of(DRESSED_EVERY);
        Self { redirects: is_so(), is_odd: is_so() }
    }

    /// Words for a report, ending in a comma unless empty.
    pub fn name(self) -> &'static str {
        match (self.redirects, self.is_odd) {
            (false, false) => "",
            (true, false) => "streams are files, ",
            (false, true) => "odd names, ",
            (true, true) => "streams are files, odd names, ",
        }
    }

    /// Directory of all files of the job.
    fn directory(self, lab: &Lab) -> PathBuf {
        let name: &[u8] = if self.is_odd { ODD } else { b"dressed" };
        lab.path("").join(OsStr::from_bytes(name))
    }

    /// Directory of the job's checkpoints.
    pub fn store(self, lab: &Lab) -> PathBuf {
        self.directory(lab).join("store")
    }

    /// Name of the program's file.
    pub fn process(self, program: &Program) -> OsString {
        let odd: &[u8] = if self.is_odd { b"\xfc-" } else { b"" };
        OsString::from_vec([odd, program.name.as_bytes()].concat())
    }

    /// A job of the program in these surroundings.
    pub fn job(self, lab: &Lab, program: &Program) -> Job {
        let directory = self.directory(lab);
        fs::create_dir_all(&directory).expect("the lab's directory can be written");
        let file = directory.join(self.process(program));
        fs::copy(binary(program), &file).expect("there is room for a program");
        let job = if self.redirects {
            let numbers = (0..ROUNDS).fold(String::new(), |mut text, number| {
                let _ = writeln!(text, "{number}");
                text
            });
            fs::write(directory.join("out.in"), numbers).expect("there is room for its input");
            let shell = Job::new(program.rank_count, "sh".as_ref()).arguments(&["-c", REDIRECTED]);
            shell.argument(directory.join("out").as_os_str()).argument(file.as_os_str())
        } else {
            Job::new(program.rank_count, &file)
        };
        let job = job.arguments(program.arguments);
        if *program == TICKING { job.argument(directory.join("lines").as_os_str()) } else { job }
    }

    /// The flaw in the job's output, if there is one. `shown`: redrun's output. `expected`: the output of an
    /// undisturbed run.
    pub fn wrong(self, lab: &Lab, program: &Program, shown: &str, expected: &str) -> Option<String> {
        let read = |name: &str| -> String {
            let of_rank = |rank| fs::read(self.directory(lab).join(format!("{name}.{rank}"))).unwrap_or_default();
            (0..program.rank_count).map(|rank| String::from_utf8_lossy(&of_rank(rank)).into_owned()).collect()
        };
        if self.redirects && !shown.is_empty() {
            return Some(format!("shown in place of files: {shown}"));
        }
        let printed = if self.redirects { read("out") } else { shown.to_owned() };
        if *program == TICKING {
            let torn = ticked(&printed, program.rank_count, true).err();
            let of_file =
                || ticked(&read("lines"), program.rank_count, false).err().map(|why| format!("in files: {why}"));
            return torn.or_else(of_file);
        }
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let is_right = if self.redirects { sorted(&printed) == sorted(expected) } else { printed == expected };
        (!is_right).then(|| format!("printed: {printed}"))
    }

    /// Removes all files of the job.
    pub fn remove(self, lab: &Lab) {
        let _ = fs::remove_dir_all(self.directory(lab));
    }
}

/// Checks that each rank printed all lines, each whole; with `again`, after a return, lines may be there twice.
fn ticked(text: &str, rank_count: u32, again: bool) -> Result<(), String> {
    let mut next = vec![0; rank_count as usize];
    for line in text.split_inclusive('\n') {
        let words: Vec<_> = line.split_whitespace().collect();
        let ["rank", rank, "line", number, "at", begun_at, ended_at, end] = words[..] else {
            return Err(format!("torn: {line:?}"));
        };
        let (Ok(rank), Ok(number)) = (rank.parse::<usize>(), number.parse::<usize>()) else {
            return Err(format!("torn: {line:?}"));
        };
        let is_whole = begun_at == ended_at && end.parse() == Ok(number) && line.ends_with('\n');
        match next.get_mut(rank) {
            Some(next) if is_whole && (number == *next || again && number < *next) => *next = number + 1,
            Some(next) if is_whole => return Err(format!("rank {rank}: line {number} in place of {next}")),
            _ => return Err(format!("torn: {line:?}")),
        }
    }
    match next.iter().position(|next| *next != ROUNDS) {
        None => Ok(()),
        Some(rank) => Err(format!("rank {rank} has {} lines of {ROUNDS}", next[rank])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_lost_and_repeated_lines_are_told_apart() {
        let line = |number: usize| format!("rank 0 line {number} at 5    5 {number}\n");
        let lines = |numbers: &mut dyn Iterator<Item = usize>| numbers.map(line).collect::<String>();
        let all = lines(&mut (0..ROUNDS));
        assert_eq!(ticked(&all, 1, false), Ok(()));
        let again = lines(&mut (0..70).chain(50..ROUNDS));
        assert_eq!(ticked(&again, 1, true), Ok(()));
        assert!(ticked(&again, 1, false).is_err());
        assert!(ticked(&lines(&mut (0..70).chain(71..ROUNDS)), 1, true).is_err());
        assert!(ticked(&lines(&mut (0..ROUNDS - 1)), 1, true).is_err());
        assert!(ticked(&all, 2, true).is_err());
        assert!(ticked(all.trim_end(), 1, true).is_err());
        assert!(ticked(&all.replacen("at 5", "at 4", 1), 1, true).is_err());
        assert!(ticked(&all.replacen("5 7\n", "5 ", 1), 1, true).is_err());
    }
}
