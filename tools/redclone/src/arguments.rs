//! The command line of `redclone`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use cloner::dirty::Method;
use cloner::image::frame::Encoding;
use cloner::source::Options;
use command_line::Generate;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  redclone secret > ~/.redclone && chmod 600 ~/.redclone
  redclone serve --secret-file ~/.redclone --listen 0.0.0.0:7777      # on the destination
  redclone run -- ./prog args                                         # prints the process id
  redclone push 4711 host:7777 --secret-file ~/.redclone              # a copy; the source goes on
  redclone push 4711 host:7777 --secret-file ~/.redclone --move       # the source ends
  redclone save 4711 image; redclone load image

Exit codes: 0 done; 2 wrong usage; 10 to 15: prepare, pre-copy, cut, transfer, restore or finish failed, and the
source runs on. run and load end as the program does.";

/// Copy a living, multi-threaded process to another host while it runs.
#[derive(Parser, Debug)]
#[command(name = "redclone", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct CloneArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a program that can be cloned
    Run(Run),
    /// Wait for copies, on the destination
    Serve(Serve),
    /// Copy a running process to a destination
    Push(Push),
    /// Copy a running process into a file
    Save(Save),
    /// Start the copy that is in a file
    Load(Load),
    /// Print a fresh secret
    Secret,
    /// Receive one image; used by serve
    #[command(hide = true)]
    Receive(Receive),
    /// Print the manual page or completions for a shell
    #[command(hide = true)]
    Generate {
        /// What to print
        #[arg(value_enum)]
        what: Generate,
    },
}

/// Options of `run`.
#[derive(Args, Debug)]
pub struct Run {
    /// Write the process id to this file, too
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Say nothing
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Where the secret is.
#[derive(Args, Debug)]
pub struct SecretOptions {
    /// A file with the secret that both sides share, 64 hexadecimal digits; otherwise $REDCLONE_SECRET
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

/// Options of `serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// Address and port to listen at; port 0 takes a free one, which is printed
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7777")]
    pub listen: String,
    /// See there.
    #[command(flatten)]
    pub secret: SecretOptions,
    /// Write address and port to this file, once they are known
    #[arg(long, value_name = "FILE")]
    pub address_file: Option<PathBuf>,
}

/// How to clone.
#[derive(Args, Debug)]
pub struct CloneOptions {
    /// How long the program may be stopped, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10)]
    pub downtime_target: u64,
    /// Maximum number of rounds before the program is stopped
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub rounds: u32,
    /// What to do when memory changes faster than it is sent: stop the program for longer, or fail
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = NoConverge::Cut)]
    pub no_converge: NoConverge,
    /// How pages that were written are found
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Tracking::Auto)]
    pub tracking: Tracking,
    /// Compress memory
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Compress::None)]
    pub compress: Compress,
    /// Leave out descriptors that cannot be carried; they are closed in the copy
    #[arg(long)]
    pub close_unsupported: bool,
    /// Compare a digest of all memory with the copy's; the program is stopped for longer
    #[arg(long)]
    pub verify_memory: bool,
    /// Print events and the result as lines of JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

impl CloneOptions {
    /// As the cloner wants them.
    #[must_use]
    pub fn options(&self, moves: bool) -> Options {
        Options {
            method: match self.tracking {
                Tracking::Auto => Method::Probe,
                Tracking::WriteProtect => Method::WriteProtect,
                Tracking::SoftDirty => Method::SoftDirty,
                Tracking::None => Method::None,
            },
            encoding: match self.compress {
                Compress::None => Encoding::Plain,
                Compress::Zstd => Encoding::Zstd,
                Compress::Lz4 => Encoding::Lz4,
            },
            downtime_target: Duration::from_millis(self.downtime_target),
            round_count_max: self.rounds.max(1),
            must_converge: self.no_converge == NoConverge::Fail,
            close_unsupported: self.close_unsupported,
            verify_memory: self.verify_memory,
            flipped_bit: None,
            moves,
            succeeds: false,
        }
    }
}

/// See [`CloneOptions::no_converge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NoConverge {
    /// Stop the program for as long as it takes.
    Cut,
    /// Fail.
    Fail,
}

/// See [`CloneOptions::tracking`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Tracking {
    /// The best that works.
    Auto,
    /// userfaultfd and PAGEMAP_SCAN (Linux 6.7).
    WriteProtect,
    /// Soft-dirty bits.
    SoftDirty,
    /// Not at all.
    None,
}

/// See [`CloneOptions::compress`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Compress {
    /// Not.
    None,
    /// zstd.
    Zstd,
    /// LZ4.
    Lz4,
}

/// Options of `push`.
#[derive(Args, Debug)]
pub struct Push {
    /// The process, as redclone run printed it
    pub pid: u32,
    /// The destination: host:port
    pub destination: String,
    /// See there.
    #[command(flatten)]
    pub secret: SecretOptions,
    /// End the source once the copy runs
    #[arg(long = "move")]
    pub moves: bool,
    /// Connections to use
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub streams: u16,
    /// See there.
    #[command(flatten)]
    pub clone: CloneOptions,
}

/// Options of `save`.
#[derive(Args, Debug)]
pub struct Save {
    /// The process, as redclone run printed it
    pub pid: u32,
    /// The file
    pub file: PathBuf,
    /// See there.
    #[command(flatten)]
    pub clone: CloneOptions,
}

/// Options of `load`.
#[derive(Args, Debug)]
pub struct Load {
    /// The file
    pub file: PathBuf,
    /// Write the process id to this file, too
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Say nothing
    #[arg(short, long)]
    pub quiet: bool,
}

/// Options of `receive`.
#[derive(Args, Debug)]
pub struct Receive {
    /// The process id that the copy must have.
    #[arg(long)]
    pub pid: u32,
    /// Numbers of the streams' descriptors.
    #[arg(long, value_delimiter = ',')]
    pub streams: Vec<i32>,
    /// Number of the descriptor from which secret and greetings are read.
    #[arg(long)]
    pub told: i32,
}
