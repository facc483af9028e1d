//! From the options about hosts, or a batch system's environment, to a plan.

mod allocation;
mod file;
mod rankfile;

use super::arguments::JobArguments;
use super::choices::{LauncherChoice, MapByArgument, MapByChoice};
use super::inject::parse_seconds;
use allocation::Allocation;
use command_line::UsageError;
use coordinator_records::ledger;
use file::HostLine;
use host_watch::shape::FAN_OUT;
use placement::plan::{DETECT_TIMEOUT, HostPlan, Launcher, MapBy, PlannedHost};
pub use rankfile::Rankfile;
use redrt_types::is_same_host;
use redrt_wire::daemon::{BindTo, Binding, HostName, Within};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::time::Duration;

/// Below this a busy host would be taken for a dead one.
const DETECT_TIMEOUT_MIN: Duration = Duration::from_millis(100);
const DETECT_TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// An address for documentation, which no host has: the route to it is the default route.
const FAR_AWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));

fn wrong(line: String) -> UsageError {
    UsageError(line)
}

/// The named rankfile. `None` if none exists, or the job comes back.
pub fn rankfile(arguments: &JobArguments) -> Result<Option<Rankfile>, UsageError> {
    let path = match (&arguments.rankfile, &arguments.map_by) {
        (Some(_), MapByArgument::Rankfile(_)) => {
            return Err(wrong("--rankfile and --map-by rankfile exclude each other".into()));
        }
        (Some(path), MapByArgument::Choice(_)) | (None, MapByArgument::Rankfile(path)) => path,
        (None, MapByArgument::Choice(_)) => return Ok(None),
    };
    if arguments.resume.is_some() {
        return Err(wrong("--rankfile: processes of a job that is resumed go where their images are".into()));
    }
    // A job that comes back has read it, perhaps on another host.
    if arguments.come_back.is_some() { Ok(None) } else { Rankfile::read(path).map(Some) }
}

/// The hosts of the job. A job that comes back has them in its journal: files and variables that named them may be on
/// another host.
pub fn plan(arguments: &JobArguments, rankfile: Option<&Rankfile>) -> Result<HostPlan, UsageError> {
    if let Some(job) = arguments.come_back {
        let planned = ledger::planned(job).map_err(|error| wrong(format!("{error:#}")))?;
        let mut plan = planned.clone().with_hosts(planned.hosts);
        if plan.is_remote() || plan.interface.is_some() {
            plan.coordinator_address = coordinator_address(&plan)?;
        }
        return Ok(plan);
    }
    let mut plan = HostPlan::here();
    plan.fan_out = arguments.fan_out.unwrap_or(FAN_OUT);
    plan.interface.clone_from(&arguments.interface);
    plan.secure = arguments.secure;
    plan.per_host = arguments.per_host;
    plan.report = arguments.report_placement;
    plan.map_by = match arguments.map_by {
        MapByArgument::Choice(MapByChoice::Node) => MapBy::Node,
        MapByArgument::Choice(_) | MapByArgument::Rankfile(_) => MapBy::Slot,
    };
    plan.binding = binding(arguments)?;
    plan.detect_timeout = match &arguments.detect_timeout {
        None => DETECT_TIMEOUT,
        Some(text) => detect_timeout(text)?,
    };
    plan.rank_count = rankfile.map(Rankfile::rank_count);
    let named = named_hosts(arguments)?;
    let allocated = match (&named, arguments.launcher) {
        (None, None | Some(LauncherChoice::Ssh | LauncherChoice::Slurm)) => {
            allocation::find(&|name| std::env::var(name).ok())?
        }
        _ => None,
    };
    let by_slurm = match arguments.launcher {
        Some(choice) => choice == LauncherChoice::Slurm,
        None => allocated.as_ref().is_some_and(Allocation::is_of_slurm),
    };
    if by_slurm && named.is_some() {
        return Err(wrong(
            "--launcher slurm takes its hosts from the allocation: leave out -hosts and --hostfile".into(),
        ));
    }
    if by_slurm && !allocated.as_ref().is_some_and(Allocation::is_of_slurm) {
        return Err(wrong("--launcher slurm: this is not inside a Slurm allocation (salloc, sbatch)".into()));
    }
    if let Some(path) = &arguments.topology {
        plan.racks = file::read_topology(path)?;
    }
    let of_rankfile = || rankfile.map(Rankfile::hosts).filter(|lines| !lines.is_empty());
    let groups = allocated.as_ref().filter(|_| by_slurm).map(|allocated| allocated.slurm_groups.clone());
    let lines = named.or(allocated.map(|allocated| allocated.lines)).or_else(of_rankfile);
    let Some(lines) = lines else {
        plan.coordinator_address = loopback()?;
        return Ok(plan);
    };
    if arguments.launcher == Some(LauncherChoice::Fork)
        && lines.iter().any(|line| !host_addresses::is_here(&line.name.name))
    {
        return Err(wrong("--launcher fork starts processes on this host only".into()));
    }
    plan.launcher = launcher(arguments, groups)?;
    plan.hosts = planned(lines, by_slurm)?;
    if plan.hosts.iter().all(|host| host.spare) {
        return Err(wrong("all hosts are spares: there is none left for the job".into()));
    }
    plan.coordinator_address = match plan.is_remote() || plan.interface.is_some() {
        true => coordinator_address(&plan)?,
        false => loopback()?,
    };
    Ok(plan)
}

fn loopback() -> Result<IpAddr, UsageError> {
    host_addresses::loopback().map_err(|error| wrong(error.to_string()))
}

fn binding(arguments: &JobArguments) -> Result<Binding, UsageError> {
    let to = BindTo::from(arguments.bind_to);
    let within = match arguments.map_by {
        MapByArgument::Choice(MapByChoice::Socket) => Within::Socket,
        MapByArgument::Choice(MapByChoice::Numa) => Within::Numa,
        MapByArgument::Choice(MapByChoice::Slot | MapByChoice::Node) | MapByArgument::Rankfile(_) => Within::Fill,
    };
    if within != Within::Fill && matches!(to, BindTo::None | BindTo::Share) {
        return Err(wrong("--map-by socket and numa: say to what processes are bound (--bind-to core)".into()));
    }
    let gpus_per_process = arguments.gpus_per_process.unwrap_or(0);
    Ok(Binding { to, within, is_reported: arguments.report_bindings, gpus_per_process })
}

/// Parses a host `HOST`, `HOST:SLOTS` or `USER@HOST` into name and slots.
pub fn parse_host(text: &str) -> Result<(HostName, Option<u32>), UsageError> {
    let line = file::parse_host(text).map_err(|error| wrong(error.to_string()))?;
    Ok((line.name, line.slot_count))
}

fn detect_timeout(text: &str) -> Result<Duration, UsageError> {
    let timeout = parse_seconds(text).map_err(|error| wrong(format!("--detect-timeout: {error}")))?;
    if !(DETECT_TIMEOUT_MIN..=DETECT_TIMEOUT_MAX).contains(&timeout) {
        return Err(wrong(format!("--detect-timeout {text}: between 0.1 and 3600 seconds, please")));
    }
    Ok(timeout)
}

fn named_hosts(arguments: &JobArguments) -> Result<Option<Vec<HostLine>>, UsageError> {
    match (&arguments.hosts, &arguments.hostfile) {
        (Some(_), Some(_)) => Err(wrong("-hosts and --hostfile exclude each other".into())),
        (Some(list), None) => file::parse_list(list).map(Some),
        (None, Some(path)) => file::read(path).map(Some),
        (None, None) => Ok(None),
    }
}

/// The launcher: srun if there are groups of nodes.
fn launcher(arguments: &JobArguments, groups: Option<Vec<Vec<String>>>) -> Result<Launcher, UsageError> {
    let default = if groups.is_some() { "srun" } else { "ssh" };
    let command = arguments.launcher_exec.as_deref().unwrap_or(OsStr::new(default));
    let words = control_network::launchers::words(command);
    if words.is_empty() {
        return Err(wrong("--launcher-exec is empty".into()));
    }
    Ok(match groups {
        Some(groups) => Launcher::Slurm { command: words, groups },
        None => Launcher::Remote(words),
    })
}

fn planned(lines: Vec<HostLine>, by_slurm: bool) -> Result<Vec<PlannedHost>, UsageError> {
    let mut hosts: Vec<PlannedHost> = Vec::new();
    // Hosts are recognized by address as well as by name. A name that does not resolve may be known to the launcher
    // only.
    let mut known: Vec<(IpAddr, String)> = Vec::new();
    for HostLine { name, slot_count, spare } in lines {
        let twice = |other: &str| {
            let same = if other == name.name { String::new() } else { format!(" (also as {other})") };
            wrong(format!("host {} is named twice{same}: write {}:2 for two slots", name.name, name.name))
        };
        if let Some(other) =
            hosts.iter().filter_map(|host| host.name.as_ref()).find(|other| is_same_host(&other.name, &name.name))
        {
            return Err(twice(&other.name));
        }
        let mut local = false;
        if !by_slurm {
            let addresses = host_addresses::resolve(&name.name).unwrap_or_default();
            if let Some((_, other)) = known.iter().find(|(address, _)| addresses.contains(address)) {
                return Err(twice(other));
            }
            known.extend(addresses.iter().map(|address| (*address, name.name.clone())));
            local = name.user.is_none() && host_addresses::is_here(&name.name);
        }
        if local && hosts.iter().any(|host| host.local) {
            return Err(wrong(format!("host {} is named twice: it is this host, as another one is", name.name)));
        }
        hosts.push(PlannedHost { name: Some(name), slot_count, spare, local });
    }
    Ok(hosts)
}

/// Address of this host that daemons can reach.
fn coordinator_address(plan: &HostPlan) -> Result<IpAddr, UsageError> {
    let found = match &plan.interface {
        Some(wanted) => host_addresses::address(wanted).map_err(|error| wrong(format!("--interface: {error}")))?,
        None => {
            let remote = plan.hosts.iter().filter(|host| !host.local).filter_map(|host| host.name.as_ref());
            let addresses =
                remote.clone().filter_map(|name| host_addresses::resolve(&name.name).ok()?.first().copied());
            let mut ways = addresses.chain([FAR_AWAY]).filter_map(|address| host_addresses::towards(address).ok());
            let names: Vec<_> = remote.map(|name| name.name.as_str()).collect();
            let no_way = || {
                wrong(format!(
                    "no address of this host leads to host {}: is the name known, and is there a route? (--interface chooses an address)",
                    names.join(", ")
                ))
            };
            ways.find(|way| !way.is_loopback()).ok_or_else(no_way)?
        }
    };
    Ok(found)
}
