//! Command line of a spawned job: options like those of the spawning job, and programs that do not come from a shell.

use super::arguments::InitialErrhandler;
use super::arguments::{JobArguments, LocalArguments};
use super::{Job, assemble};
use clap::ValueEnum;
use command_line::UsageError;
use placement::plan::{HostPlan, Launcher, MapBy};
use redrt_wire::control::Transport;
use redrt_wire::daemon::{BindTo, Within};
use redrt_wire::dynamic::{Command, Origin};
use std::ffi::{OsStr, OsString};

/// Options for a job that a process of this one spawns: the same hosts and transports.
#[must_use]
pub fn options_for_spawned(job: &Job) -> Vec<OsString> {
    let mut options: Vec<OsString> = vec!["--quiet".into()];
    let mut option = |name: &str, value: OsString| options.extend([name.into(), value]);
    let transport = match job.options.transport {
        Transport::Auto => "auto",
        Transport::Shm => "shm",
        Transport::Tcp => "tcp",
    };
    option("--transport", transport.into());
    let plan = &job.hosts;
    let names = host_list(plan);
    match &plan.launcher {
        Launcher::Slurm { command, .. } => {
            option("--launcher", "slurm".into());
            option("--launcher-exec", command.join(OsStr::new(" ")));
        }
        Launcher::Remote(words) if !names.is_empty() => {
            option("--hosts", names.into());
            option("--launcher-exec", words.join(OsStr::new(" ")));
        }
        Launcher::Remote(_) => option("--launcher", "fork".into()),
    }
    if let Some(interface) = &plan.interface {
        option("--interface", interface.into());
    }
    let map_by = match (plan.map_by, plan.binding.within) {
        (MapBy::Node, _) => Some("node"),
        (MapBy::Slot, Within::Socket) => Some("socket"),
        (MapBy::Slot, Within::Numa) => Some("numa"),
        (MapBy::Slot, Within::Fill) => None,
    };
    map_by.into_iter().for_each(|what| option("--map-by", what.into()));
    let bound = match plan.binding.to {
        // The spawning processes have divided the cores among themselves.
        BindTo::None | BindTo::Share => "none",
        BindTo::Core => "core",
        BindTo::Socket => "socket",
        BindTo::Numa => "numa",
    };
    options.extend(["--bind-to".into(), bound.into()]);
    let gpus = plan.binding.gpus_per_process;
    options.extend((gpus > 0).then(|| ["--gpus-per-process".into(), gpus.to_string().into()]).into_iter().flatten());
    options.extend(plan.secure.then(|| "--secure".into()));
    options.extend(job.label.then(|| "--label".into()));
    options.extend(job.options.checks_collectives.then(|| "--check-collectives".into()));
    options.extend(job.options.pedantic.then(|| "--pedantic".into()));
    options
}

/// The hosts that are not spares, in the form of `--hosts`.
fn host_list(plan: &HostPlan) -> String {
    let used = plan.hosts.iter().filter(|host| !host.spare);
    let text = used.filter_map(|host| {
        let name = host.name.as_ref()?;
        let user = name.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let slots = host.slot_count.map(|count| format!(":{count}")).unwrap_or_default();
        Some(format!("{user}{}{slots}", name.name))
    });
    text.collect::<Vec<_>>().join(",")
}

/// The job of these programs.
///
/// # Errors
/// When it cannot be carried out.
pub fn assemble_spawned(arguments: &JobArguments, commands: Vec<Command>, origin: Origin) -> Result<Job, UsageError> {
    let mut arguments = arguments.clone();
    let mut hosts: Vec<&str> = Vec::new();
    for host in commands.iter().filter_map(|command| command.hosts.as_deref()).flat_map(|list| list.split(',')) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    if !hosts.is_empty() {
        (arguments.hosts, arguments.launcher) = (Some(hosts.join(",")), None);
    }
    // A single file is the log of the spawning job.
    arguments.audit = arguments.audit.filter(|path| path.is_dir());
    let locals: Vec<_> = commands.into_iter().map(local).collect();
    let job = assemble(&arguments, &locals)?;
    Ok(Job { origin: Some(origin), ..job })
}

fn local(command: Command) -> LocalArguments {
    let Command { program, arguments, rank_count, directory, path, initial_errhandler, .. } = command;
    // The library has accepted the name, so it is one of these.
    let initial_errhandler = initial_errhandler.and_then(|name| InitialErrhandler::from_str(&name, false).ok());
    LocalArguments {
        mca: Vec::new(),
        rank_count: Some(rank_count.to_string()),
        path,
        soft: None,
        arch: None,
        initial_errhandler,
        file: None,
        directory: Some(directory.into()),
        export: Vec::new(),
        environment: Vec::new(),
        global_environment: Vec::new(),
        program: std::iter::once(program).chain(arguments).collect(),
    }
}
