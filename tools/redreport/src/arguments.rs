//! The command line of `redreport`.

use audit_log::chain::Head;
use audit_log::heads::HeadStore;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use command_line::{Generate, UsageError};
use std::ffi::OsString;
use std::path::PathBuf;

/// Say what the audit logs of jobs hold.
///
/// A LOG is a file that redrun --audit wrote, or a directory of them. Several jobs, in one log or in many, are reported
/// together: that is how a host that corrupts data now and then is found.
#[derive(Parser, Debug)]
#[command(name = "redreport", version, max_term_width = 100, args_conflicts_with_subcommands = true)]
pub struct ReportArguments {
    /// Print a manual page or shell completions and leave
    #[arg(long, value_enum, value_name = "WHAT", exclusive = true)]
    pub(super) generate: Option<Generate>,

    /// The report as JSON, with all that is known
    #[arg(long)]
    pub(super) json: bool,

    /// The report as a page for a browser, in one file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,

    /// Count what was found in jobs with injected faults against hosts too, as after redrun --inject sick:HOST:N
    #[arg(long = "count-injected")]
    pub(super) count_injected: bool,

    /// Audit logs, or directories of them
    #[arg(value_name = "LOG")]
    pub(super) logs: Vec<PathBuf>,

    #[command(subcommand)]
    pub(super) what: Option<What>,
}

#[derive(Subcommand, Debug)]
pub(super) enum What {
    /// Find out whether logs are as they were written. Exit code: 1 if something was changed, 3 if the end of a job is
    /// missing or a log is empty
    Verify {
        /// Where redrun has noted heads of logs (redrun --audit-heads): those of these logs must be in them [default:
        /// the file of this user]
        #[arg(long, value_name = "FILE", env = "REDRT_AUDIT_HEADS")]
        noted: Option<HeadStore>,

        /// What redrun printed as the head when it ended (NUMBER:DIGITS): that record must be in one of the logs
        #[arg(long = "head", value_name = "HEAD")]
        heads: Vec<Head>,

        /// Audit logs, or directories of them
        #[arg(value_name = "LOG", required = true)]
        logs: Vec<PathBuf>,
    },
    /// Print the hosts that corrupt data, a line each: for prologs and health checks. Exit code: 4 if there are any. A
    /// directory without logs says nothing against a host
    Sick {
        /// This host alone
        #[arg(long, value_name = "NAME")]
        host: Option<String>,

        /// Count what was found in jobs with injected faults, too
        #[arg(long = "count-injected")]
        count_injected: bool,

        /// Audit logs, or directories of them
        #[arg(value_name = "LOG", required = true)]
        logs: Vec<PathBuf>,
    },
}

pub(super) fn command() -> clap::Command {
    ReportArguments::command()
}

/// A command line as it was parsed.
pub(super) enum Parsed {
    Arguments(ReportArguments),
    /// Help or version, to be printed.
    Text(Vec<u8>),
}

pub(super) fn parse(arguments: Vec<OsString>) -> Result<Parsed, UsageError> {
    let parsed =
        command().try_get_matches_from(arguments).and_then(|matches| ReportArguments::from_arg_matches(&matches));
    match parsed {
        Ok(arguments) => Ok(Parsed::Arguments(arguments)),
        Err(error) if !error.use_stderr() => Ok(Parsed::Text(error.render().to_string().into_bytes())),
        Err(error) => Err(command_line::one_line(&error)),
    }
}
