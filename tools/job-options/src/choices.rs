//! Values of the options about placement: `--launcher`, `--map-by`, `--bind-to`.

use clap::ValueEnum;
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
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
