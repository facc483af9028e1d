//! Values of the options about placement: `--launcher`, `--map-by`, `--bind-to`, `--checkpoint-level`.

use checkpoint_store::pieces::{Code, PIECE_COUNT_MAX};
use clap::ValueEnum;
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use redrt_wire::daemon::BindTo;
use std::ffi::OsStr;
use std::path::PathBuf;

/// `--launcher`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum LauncherChoice {
    /// On this host only.
    Fork,
    /// One ssh for each host.
    Ssh,
    /// One srun for all hosts of an allocation.
    Slurm,
}

/// `--map-by`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MapByChoice {
    /// Fill host after host.
    #[default]
    #[value(alias = "core")]
    Slot,
    /// Go round the hosts.
    Node,
    /// Fill host after host; within a host go round its sockets.
    Socket,
    /// Fill host after host; within a host go round the nodes of its memory.
    Numa,
}

/// Value of `--map-by`: a word, or `rankfile:file=FILE` of Open MPI 5.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapByArgument {
    Choice(MapByChoice),
    /// Path of a rankfile, as for `--rankfile`.
    Rankfile(PathBuf),
}

/// Parser of [`MapByArgument`].
#[derive(Clone, Debug)]
pub struct MapByParser;

impl TypedValueParser for MapByParser {
    type Value = MapByArgument;

    fn parse_ref(
        &self,
        command: &clap::Command,
        option: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<MapByArgument, clap::Error> {
        match value.to_str().and_then(|text| text.strip_prefix("rankfile:file=")) {
            Some(path) => Ok(MapByArgument::Rankfile(path.into())),
            None => EnumValueParser::new().parse_ref(command, option, value).map(MapByArgument::Choice),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = MapByChoice::value_variants().iter().filter_map(MapByChoice::to_possible_value);
        Some(Box::new(words.chain([PossibleValue::new("rankfile:file=FILE").help("As --rankfile")])))
    }
}

/// `--checkpoint-level`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LevelChoice {
    /// On each host's own disk.
    Local,
    /// There, and on that of another host.
    Partner,
    /// In pieces, on the disks of several hosts.
    #[value(skip)]
    Erasure(Code),
    /// In its memory, and in that of another host.
    Memory,
    /// In a directory that all hosts see.
    Shared,
    /// In an object store, which is named by its URL.
    Object,
}

/// Parser of [`LevelChoice`].
#[derive(Clone, Debug)]
pub struct LevelParser;

impl TypedValueParser for LevelParser {
    type Value = LevelChoice;

    fn parse_ref(
        &self,
        command: &clap::Command,
        option: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<LevelChoice, clap::Error> {
        let Some(numbers) = value.to_str().and_then(|text| text.strip_prefix("erasure:")) else {
            let parsed = EnumValueParser::new().parse_ref(command, option, value);
            return parsed.map_err(|_| {
                let words = self.possible_values().into_iter().flatten();
                let words = words.map(|word| word.get_name().to_owned()).collect::<Vec<_>>().join(", ");
                let why = format!("--checkpoint-level {}: there is no such level, but {words}", value.display());
                command.clone().error(ErrorKind::InvalidValue, why)
            });
        };
        Code::parse(numbers).map(LevelChoice::Erasure).ok_or_else(|| {
            let why = format!(
                "--checkpoint-level erasure:{numbers}: say how many data and parity pieces, as erasure:4+2, with \
                 {PIECE_COUNT_MAX} together at most"
            );
            command.clone().error(ErrorKind::ValueValidation, why)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = LevelChoice::value_variants().iter().filter_map(LevelChoice::to_possible_value);
        let in_pieces = PossibleValue::new("erasure:K+M").help("In pieces, on the disks of several hosts");
        Some(Box::new(words.chain([in_pieces])))
    }
}

/// `--bind-to`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BindToChoice {
    /// An equal share of the cores of its host, if there are enough for all.
    #[default]
    Share,
    /// Let the system choose.
    None,
    /// As many cores as OMP_NUM_THREADS says, or one.
    Core,
    /// A socket.
    Socket,
    /// A node of the memory.
    Numa,
}

impl From<BindToChoice> for BindTo {
    fn from(choice: BindToChoice) -> Self {
        match choice {
            BindToChoice::Share => Self::Share,
            BindToChoice::None => Self::None,
            BindToChoice::Core => Self::Core,
            BindToChoice::Socket => Self::Socket,
            BindToChoice::Numa => Self::Numa,
        }
    }
}
