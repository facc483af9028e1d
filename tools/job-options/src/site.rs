//! Defaults of a site and a user, so that they need not be given each time: `/etc/redrt/redrt.toml` and
//! `~/.config/redrt/redrt.toml` (`$XDG_CONFIG_HOME`), or the file that `REDRT_CONFIG` names.
//!
//! ```toml
//! [redrun]
//! checkpoint-dir = "/scratch/checkpoints"
//! detect-timeout = 5
//! verbose = true
//! ```
//!
//! A key is an option without its dashes. Precedence: the command line, then environment variables, then the user's
//! file, then the site's. Defaults become words of the command line, so no other code reads the files: a coordinator
//! that comes back has the words its job began with, whatever the files say by then.

use super::arguments::{command, find_option, value_count, with_two_dashes};
use super::files;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command};
use command_line::UsageError;
use nix::unistd::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const VARIABLE: &str = "REDRT_CONFIG";
const OF_SITE: &str = "/etc/redrt/redrt.toml";
const IN_CONFIG: &str = "redrt/redrt.toml";
/// Section of a file for redrun.
const SECTION: &str = "redrun";

/// Also used by redctl.
const CHECKPOINT_DIRECTORY: &str = "checkpoint_directory";

/// Default of `--checkpoint-dir`, with precedence over files.
const CHECKPOINT_DIRECTORY_VARIABLE: &str = "REDRT_CHECKPOINT_DIR";
pub(super) const CHECKPOINT_DIRECTORY_USUAL: &str = "redrt-checkpoints";

/// Ids of options that concern a single run.
const OF_ONE_RUN: [&str; 16] = [
    "attach",
    "come_back",
    "configfile",
    "quorum_socket",
    "quorum_term",
    "detach",
    "generate",
    "help",
    "json_summary",
    "output_directory",
    "profile",
    "rankfile",
    "replace_coordinator",
    "replicate",
    "resume",
    "seed",
];
/// Ids of options with which redrun's other options are elsewhere, or there are none.
const WITHOUT_DEFAULTS: [&str; 4] = ["attach", "generate", "coordinator", "spawned"];
/// Options that are refused unless one of others is given: their defaults apply only then.
const NEEDS: [(&str, &[&str]); 16] = [
    (CHECKPOINT_DIRECTORY, &["checkpoint", "resume", "protect"]),
    ("checkpoint_archive", &["checkpoint", "resume", "protect"]),
    ("checkpoint_chain", &["checkpoint", "resume", "protect"]),
    ("checkpoint_compression", &["checkpoint", "resume", "protect"]),
    ("checkpoint_key", &["checkpoint", "resume", "protect"]),
    ("checkpoint_level", &["checkpoint", "resume", "protect"]),
    ("checkpoint_scratch", &["checkpoint", "resume", "protect"]),
    ("first_checkpoint", &["checkpoint", "protect"]),
    ("host_wait", &["checkpoint", "protect"]),
    ("max_degree", &["spares", "pool", "arbitrate"]),
    ("metrics_targets", &["metrics"]),
    ("mtbf", &["checkpoint", "protect"]),
    ("pool_secret", &["pool"]),
    ("coordinator_journal", &["detachable", "detach"]),
    ("coordinator_lease", &["detachable", "detach"]),
    ("coordinators", &["detachable", "detach"]),
];
/// Options whose defaults yield to others that say the same or exclude it, besides conflicts that clap knows.
const GIVES_WAY: [(&str, &[&str]); 8] = [
    ("arbitrate", &["degree", "replicate", "verify", "protect"]),
    ("checkpoint", &["protect"]),
    ("degree", &["check_determinism", "protect", "resume"]),
    ("first_checkpoint", &["resume"]),
    ("hostfile", &["hosts", "launcher"]),
    ("hosts", &["hostfile", "launcher"]),
    ("map_by", &["bind_to"]),
    ("spares", &["pool", "protect"]),
];

/// Options that apply unless others are given: their words on a command line, by clap's ids.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    words: BTreeMap<String, String>,
    /// Files that were read.
    files: Vec<PathBuf>,
}

impl Defaults {
    /// Defaults of this host and user.
    ///
    /// # Errors
    /// When a file cannot be read, is not TOML, or has an unknown option.
    pub fn of_this_user() -> Result<Self, UsageError> {
        let mut defaults = Self::default();
        if let Some(named) = std::env::var_os(VARIABLE) {
            // An empty value means no file.
            if !named.is_empty() {
                defaults.read(Path::new(&named), true)?;
            }
            return Ok(defaults);
        }
        defaults.read(Path::new(OF_SITE), false)?;
        let home = || Some(PathBuf::from(std::env::var_os("HOME").filter(|home| !home.is_empty())?).join(".config"));
        let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        if let Some(config) = config.or_else(home) {
            defaults.read(&config.join(IN_CONFIG), false)?;
        }
        Ok(defaults)
    }

    /// Default of an option, by clap's id.
    #[must_use]
    pub fn value(&self, id: &str) -> Option<&str> {
        self.words.get(id).map(String::as_str)
    }

    /// Adds the defaults of this file, which take precedence.
    ///
    /// # Errors
    /// When it cannot be read, is not TOML, or has an unknown option.
    pub fn with(&self, path: &Path) -> Result<Self, UsageError> {
        let mut defaults = self.clone();
        defaults.read(path, true)?;
        Ok(defaults)
    }

    /// Reads a file, whose defaults take precedence over those read before. `must_be`: it must exist.
    pub fn read(&mut self, path: &Path, must_be: bool) -> Result<(), UsageError> {
        let wrong = |why: String| UsageError(format!("{}: {why}", path.display()));
        let opened = files::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (facts, file) = match opened {
            Ok(opened) => opened,
            Err(error) if !must_be && is_absent(&error) => return Ok(()),
            Err(error) => return Err(wrong(error.to_string())),
        };
        // A file that the user names is trusted.
        if !must_be {
            check_trust(&facts, Uid::effective()).map_err(|why| wrong(why.to_string()))?;
        }
        let text = files::text_of(&file).map_err(|error| wrong(error.to_string()))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
            wrong(format!("line {line}: {}", error.message()))
        })?;
        if let Some(other) = table.keys().find(|key| *key != SECTION) {
            return Err(wrong(format!("there is no section or key '{other}' outside of [{SECTION}]")));
        }
        let Some(section) = table.get(SECTION) else { return Ok(()) };
        let section = section.as_table().ok_or_else(|| wrong(format!("{SECTION} is no section: [{SECTION}]")))?;
        let command = command();
        for (key, value) in section {
            let option = option(&command, key).map_err(|why| wrong(format!("{key}: {why}")))?;
            let word = word(option, value).map_err(|why| wrong(format!("{key}: {why}")))?;
            match word {
                Some(word) => self.words.insert(option.get_id().to_string(), word),
                None => self.words.remove(option.get_id().as_str()),
            };
        }
        self.files.push(path.to_owned());
        Ok(())
    }

    /// Puts the defaults behind the program's name, except those that the given options make superfluous.
    #[must_use]
    pub fn before(&self, arguments: Vec<OsString>) -> Vec<OsString> {
        if self.words.is_empty() {
            return arguments;
        }
        let command = command();
        let first: Vec<_> = arguments.split(|word| word == ":").next().unwrap_or_default().to_vec();
        // Faults of the command line are reported when it is parsed.
        let Ok(first) = with_two_dashes(first, &command) else { return arguments };
        let lenient = command.clone().ignore_errors(true).disable_help_flag(true).disable_version_flag(true);
        let Ok(matches) = lenient.try_get_matches_from(first) else { return arguments };
        let is_said = |id: &str| {
            let source = matches.value_source(id);
            matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
                || id == CHECKPOINT_DIRECTORY && checkpoint_directory_of_environment().is_some()
        };
        let said: BTreeSet<_> = command.get_arguments().map(|option| option.get_id().as_str()).collect();
        let said: BTreeSet<_> = said.into_iter().filter(|id| is_said(id)).collect();
        if WITHOUT_DEFAULTS.iter().any(|id| said.contains(id)) {
            return arguments;
        }
        let mut words = arguments.into_iter();
        let name: Vec<_> = words.next().into_iter().collect();
        name.into_iter().chain(self.fitting(&command, &said)).chain(words).collect()
    }

    /// Words of defaults that fit the given options.
    fn fitting(&self, command: &Command, said: &BTreeSet<&str>) -> Vec<OsString> {
        let options = || command.get_arguments().filter(|option| self.words.contains_key(option.get_id().as_str()));
        let clashes = |option: &&Arg| {
            let id = option.get_id().as_str();
            let excludes = |option: &Arg, other: &str| {
                command.get_arg_conflicts_with(option).iter().any(|conflict| conflict.get_id() == other)
            };
            let other = |other: &&str| command.get_arguments().find(|option| option.get_id() == *other);
            said.contains(id)
                || GIVES_WAY.iter().any(|(own, to)| *own == id && to.iter().any(|other| said.contains(other)))
                || said.iter().any(|name| excludes(option, name))
                || said.iter().filter_map(other).any(|other| excludes(other, id))
        };
        let left: Vec<_> = options().filter(|option| !clashes(option)).collect();
        let is_there = |id: &str| said.contains(id) || left.iter().any(|option| option.get_id() == id);
        let lacks = |option: &Arg| {
            let needed = NEEDS.iter().find(|(own, _)| option.get_id() == own);
            needed.is_some_and(|(_, any)| !any.iter().any(|id| is_there(id)))
        };
        let word = |option: &Arg| {
            let long = option.get_long().expect("only such options are kept");
            match self.words[option.get_id().as_str()].as_str() {
                "" => format!("--{long}").into(),
                value => format!("--{long}={value}").into(),
            }
        };
        left.iter().filter(|option| !lacks(option)).map(|option| word(option)).collect()
    }

    /// Adds to a message that defaults from a file may be the fault.
    #[must_use]
    pub fn explain(&self, UsageError(why): UsageError) -> UsageError {
        match self.files.last() {
            Some(file) if !self.words.is_empty() => {
                UsageError(format!("{why} (with the options of {}; {VARIABLE}= leaves them out)", file.display()))
            }
            _ => UsageError(why),
        }
    }
}

/// True if the file does not exist, or its directory cannot be searched: neither is needed.
fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// Reason not to trust a file: another user may have written the options, which say what is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
enum Distrust {
    #[error("it belongs to neither root nor you: redrun does not do what others say (chown, or {VARIABLE}=)")]
    Owner,
    #[error("others may write to it: redrun does not do what others say (chmod go-w, or {VARIABLE}=)")]
    Mode,
}

/// Checks that a file belongs to its user or coordinator, and nobody else can write it. A group with the user's number
/// counts as that user's own.
fn check_trust(facts: &Metadata, user: Uid) -> Result<(), Distrust> {
    let by_group = facts.mode() & 0o020 != 0 && facts.gid() != facts.uid();
    if facts.uid() != 0 && facts.uid() != user.as_raw() {
        Err(Distrust::Owner)
    } else if facts.mode() & 0o002 != 0 || by_group {
        Err(Distrust::Mode)
    } else {
        Ok(())
    }
}

/// A fault in a key or its value.
#[derive(Debug, thiserror::Error)]
enum KeyError {
    #[error("redrun has no such option")]
    Unknown,
    #[error("this is said for one run, on its command line")]
    OfOneRun,
    #[error("say true or false")]
    NoFlag,
    #[error("say a text or a number")]
    NoWord,
    #[error("it is empty")]
    Empty,
    #[error("{}", .0.replace(" for '[value]'", ""))]
    Value(String),
}

/// The option with this name, if files may have it.
fn option<'a>(command: &'a Command, key: &str) -> Result<&'a Arg, KeyError> {
    let option = find_option(command, key).filter(|option| key.len() > 1 && !option.is_hide_set());
    let option = option.ok_or(KeyError::Unknown)?;
    let is_of_one_run = OF_ONE_RUN.contains(&option.get_id().as_str())
        || option.get_help_heading().is_none_or(|heading| ["Testing", "Environment"].contains(&heading))
        || super::arguments::is_of_program(option);
    if is_of_one_run { Err(KeyError::OfOneRun) } else { Ok(option) }
}

/// The value as a word of a command line; empty for an option without a value. `None` for a flag that is false.
fn word(option: &Arg, value: &toml::Value) -> Result<Option<String>, KeyError> {
    let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
    let word = match (value, is_flag || value_count(option) == 0) {
        (toml::Value::Boolean(is_wanted), true) => return Ok(is_wanted.then(String::new)),
        (toml::Value::String(text), _) if !is_flag => text.clone(),
        (toml::Value::Integer(number), _) if !is_flag => number.to_string(),
        (toml::Value::Float(number), _) if !is_flag => number.to_string(),
        (_, true) => return Err(KeyError::NoFlag),
        (_, false) => return Err(KeyError::NoWord),
    };
    if word.is_empty() {
        return Err(KeyError::Empty);
    }
    // Checks the value by itself, without the option's relations to others.
    let alone = Arg::new("value").value_parser(option.get_value_parser().clone()).allow_hyphen_values(true);
    let parsed = Command::new("value").disable_help_flag(true).arg(alone).try_get_matches_from(["value", "--", &word]);
    parsed.map_err(|error| KeyError::Value(command_line::one_line(&error).0))?;
    Ok(Some(word))
}

/// Directory of jobs' checkpoints, by the environment, files or default, for redctl. A job has its files' values in its
/// words.
#[must_use]
pub fn checkpoint_directory() -> PathBuf {
    let of_files = || Some(Defaults::of_this_user().ok()?.value(CHECKPOINT_DIRECTORY)?.into());
    checkpoint_directory_of_environment().or_else(of_files).unwrap_or_else(|| CHECKPOINT_DIRECTORY_USUAL.into())
}

/// Directory of jobs' checkpoints, by the environment.
pub(super) fn checkpoint_directory_of_environment() -> Option<PathBuf> {
    std::env::var_os(CHECKPOINT_DIRECTORY_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::words;
    use std::os::unix::fs::PermissionsExt;

    /// Defaults from files; each takes precedence over those before.
    fn defaults(texts: &[&str]) -> Result<Defaults, String> {
        let mut defaults = Defaults::default();
        for text in texts {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
            defaults.read(file.path(), true).map_err(|UsageError(why)| {
                why.strip_prefix(&format!("{}: ", file.path().display())).expect("it names the file").to_owned()
            })?;
        }
        Ok(defaults)
    }

    fn before(texts: &[&str], line: &str) -> String {
        let words = defaults(texts).unwrap().before(words(line));
        words.iter().skip(1).map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_somebody_else_may_have_written_is_not_done() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[redrun]\non-event = 'true'\n").unwrap();
        let read = |mode: u32, must_be: bool| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            Defaults::default().read(file.path(), must_be).map_err(|UsageError(why)| why)
        };
        read(0o644, false).unwrap();
        assert!(read(0o666, false).unwrap_err().contains("others may write to it"));
        read(0o666, true).unwrap();
        let facts = file.as_file().metadata().unwrap();
        let by_group = read(0o664, false);
        assert_eq!(by_group.is_ok(), facts.gid() == facts.uid(), "{by_group:?}");
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        let facts = file.as_file().metadata().unwrap();
        let other = Uid::from_raw(facts.uid() + 1);
        let is_of_root = facts.uid() == 0;
        assert_eq!(check_trust(&facts, other), if is_of_root { Ok(()) } else { Err(Distrust::Owner) });
        assert_eq!(check_trust(&facts, Uid::from_raw(facts.uid())), Ok(()));
    }

    #[test]
    fn options_of_files_are_in_force_unless_something_else_is_said() {
        let text = "[redrun]\ndegree = 2\nspares = 1\nverbose = true\npool-secret = '/s'\nstrikes = 5\n";
        assert_eq!(before(&[text], "true"), "--degree=2 --strikes=5 --spares=1 --verbose true");
        assert_eq!(before(&[text], "-r 3 -v true"), "--strikes=5 --spares=1 -r 3 -v true");
        let user = "[redrun]\nverbose = false\ndegree = 1\n";
        let both = "--degree=1 --strikes=5 --spares=1 true";
        assert_eq!(before(&[text, user], "true"), both);
        assert_eq!(before(&["# nothing\n"], "true"), "true");
    }

    #[test]
    fn site_options_yield_to_conflicts_and_wait_for_requirements() {
        let degree = "[redrun]\ndegree = 2\nspares = 1\n";
        assert_eq!(before(&[degree], "--check-determinism true"), "--check-determinism true");
        assert_eq!(before(&[degree], "--protect auto true"), "--protect auto true");
        let level = "[redrun]\ncheckpoint-level = 'partner'\nhosts = 'h1,h2'\n";
        assert_eq!(before(&[level], "true"), "--hosts=h1,h2 true");
        let with_lines = "--checkpoint-level=partner --hosts=h1,h2 --checkpoint 1h true";
        assert_eq!(before(&[level], "--checkpoint 1h true"), with_lines);
        assert_eq!(before(&[level], "-f file true"), "-f file true");
        let whole = "[redrun]\ncheckpoint = '10min'\ncheckpoint-level = 'local'\n";
        assert_eq!(before(&[whole], "true"), "--checkpoint=10min --checkpoint-level=local true");
    }

    #[test]
    fn what_is_no_job_of_its_own_has_no_defaults() {
        for line in ["--attach ab", "--generate man", "--coordinator -r 2 true", "--spawned"] {
            assert_eq!(before(&["[redrun]\nverbose = true\n"], line), line);
        }
    }

    /// Words of the program, and behind it, are not options.
    #[test]
    fn only_the_options_of_redrun_count_as_said() {
        assert_eq!(
            before(&["[redrun]\ndegree = 2\n"], "-n 2 app -r 3 : app -r 1"),
            "--degree=2 -n 2 app -r 3 : app -r 1"
        );
    }

    #[test]
    fn an_old_spelling_of_an_option_is_taken() {
        let defaults = defaults(&["[redrun]\nroots = 3\n"]).unwrap();
        assert_eq!(defaults.value("coordinators"), Some("3"));
    }

    #[test]
    fn a_file_that_is_wrong_is_one_line() {
        for (text, says) in [
            ("[redrun]\nx = \n", "line 2: "),
            ("[redrun]\nnosuch = 1\n", "nosuch: redrun has no such option"),
            ("[redrun]\nr = 1\n", "r: redrun has no such option"),
            ("[redrun]\ncoordinator = true\n", "coordinator: redrun has no such option"),
            ("[redrun]\nnp = 2\n", "np: this is said for one run"),
            ("[redrun]\nresume = 'x'\n", "resume: this is said for one run"),
            ("[redrun]\ninject = 'kill'\n", "inject: this is said for one run"),
            ("[redrun]\nversion = true\n", "version: "),
            ("[redrun]\nverbose = 'yes'\n", "verbose: say true or false"),
            ("[redrun]\ndegree = true\n", "degree: say a text or a number"),
            ("[redrun]\ndegree = [1]\n", "degree: say a text or a number"),
            ("[redrun]\nhosts = ''\n", "hosts: it is empty"),
            ("[redrun]\nbind-to = 'rope'\n", "bind-to: invalid value 'rope'"),
            ("[redrun]\nstrikes = 0\n", "strikes: invalid value '0'"),
            ("degree = 2\n", "no section or key 'degree' outside of [redrun]"),
            ("redrun = 2\n", "redrun is no section"),
        ] {
            let why = defaults(&[text]).unwrap_err();
            assert!(why.contains(says) && !why.contains('\n'), "{text:?}: {why}");
        }
        let missing = Defaults::default().read(Path::new("/no/such"), true).unwrap_err();
        assert!(missing.0.contains("/no/such"), "{missing}");
        assert!(Defaults::default().read(Path::new("/no/such"), false).is_ok());
    }
}
