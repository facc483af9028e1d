//! The MPI libraries that are compared: how each compiles and starts a program.

use crate::runner;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How processes are to reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Shared memory.
    SharedMemory,
    /// TCP over the loopback interface.
    Tcp,
}

impl Transport {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shared memory",
            Self::Tcp => "TCP",
        }
    }
}

/// Which MPI it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// This project, installed in a prefix.
    Redrt(PathBuf),
    /// Debian's Open MPI.
    OpenMpi,
    /// Debian's MPICH.
    Mpich,
}

/// One MPI library of this machine.
#[derive(Clone, Debug)]
pub struct Library {
    /// Which.
    pub kind: Kind,
    /// Its name and version; when it is absent, what is missing.
    pub name: String,
    /// Whether it is installed.
    pub present: bool,
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
    /// redrt and its peers, also those that are not installed.
    pub fn found(prefix: &Path) -> Result<Vec<Self>> {
        let kinds = [Kind::Redrt(prefix.to_owned()), Kind::OpenMpi, Kind::Mpich];
        let libraries: Vec<_> = kinds.into_iter().map(Self::look).collect();
        anyhow::ensure!(libraries[0].present, "{} holds no redrt", prefix.display());
        for library in libraries.iter().filter(|library| !library.present) {
            eprintln!("redrt-bench: {}", library.name);
        }
        Ok(libraries)
    }

    fn look(kind: Kind) -> Self {
        let (starter, short, package) = match &kind {
            Kind::Redrt(prefix) => (prefix.join("bin/redrun"), "redrt", ""),
            Kind::OpenMpi => ("mpirun.openmpi".into(), "Open MPI", "openmpi-bin libopenmpi-dev"),
            Kind::Mpich => ("mpiexec.mpich".into(), "MPICH", "mpich libmpich-dev"),
        };
        let version = runner::text(Command::new(starter).arg("--version"));
        // "redrun 0.1.0", "mpirun (Open MPI) 4.1.4", "HYDRA build details:\n    Version:      4.0.2"
        let number = version.as_deref().and_then(|text| {
            text.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))
        });
        let compiles = runner::text(Self::compiler(&kind).arg("--version")).is_some();
        match number {
            Some(number) if compiles => Self { name: format!("{short} {number}"), present: true, kind },
            _ => {
                let name = format!("{short} is not installed (packages {package}): its columns are missing");
                Self { name, present: false, kind }
            }
        }
    }

    /// Whether it is this project.
    pub fn is_redrt(&self) -> bool {
        matches!(self.kind, Kind::Redrt(_))
    }

    fn compiler(kind: &Kind) -> Command {
        match kind {
            Kind::Redrt(prefix) => Command::new(prefix.join("bin/mpicc")),
            Kind::OpenMpi => Command::new("mpicc.openmpi"),
            Kind::Mpich => Command::new("mpicc.mpich"),
        }
    }

    /// Compiles one C program.
    pub fn compile(&self, source: &Path, to: &Path) -> Result<()> {
        let mut command = Self::compiler(&self.kind);
        let output = command.args(["-O2", "-w", "-o"]).arg(to).arg(source).arg("-lm").output();
        let output = output.with_context(|| format!("Failed to run the compiler of {}", self.name))?;
        let text = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{} does not compile {}: {text}", self.name, source.display());
        Ok(())
    }

    /// Starts `ranks` processes of a program; `None` when the library is not measured over this transport.
    pub fn command(&self, ranks: u32, transport: Transport, program: &Path) -> Option<Command> {
        let ranks = ranks.to_string();
        let tcp = transport == Transport::Tcp;
        let mut command = match &self.kind {
            Kind::Redrt(prefix) => {
                let mut command = runner::bounded(prefix.join("bin/redrun"), tcp);
                command.args(["-q", "-n", &ranks, "--transport", if tcp { "tcp" } else { "shm" }]);
                command
            }
            Kind::OpenMpi => {
                let mut command = runner::bounded("mpirun.openmpi", tcp);
                command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks, "--mca", "pml", "ob1", "--mca"]);
                command.args(["btl", if tcp { "tcp,self" } else { "vader,self" }]);
                if tcp {
                    command.args(["--mca", "btl_tcp_if_include", "lo"]);
                }
                command
            }
            // This build reaches the processes of its own node over shared memory, whatever it is told.
            Kind::Mpich if tcp => return None,
            Kind::Mpich => {
                let mut command = runner::bounded("mpiexec.mpich", false);
                command.env("UCX_TLS", "sm,self").args(["-n", &ranks]);
                command
            }
        };
        command.arg(program);
        Some(command)
    }
}
