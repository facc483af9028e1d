//! Commands with a limit on their time, and with a loopback network of their own where asked for.

use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

const TIMEOUT_SECONDS: &str = "180";

/// Makes every TCP connection over loopback use CUBIC. A setting of the whole machine would affect everyone, and some
/// libraries cannot set it for their sockets; so it is an attribute of routes in a network namespace of the measured
/// job.
const LOOPBACK: &str = "ip link set lo up && for to in 127.0.0.0/8 127.0.0.1; do ip route replace local $to dev lo \
    proto kernel scope host src 127.0.0.1 table local congctl cubic || exit 1; done; exec \"$@\"";

/// True when a network namespace with CUBIC can be made here.
pub fn has_own_network() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-c", LOOPBACK, "sh", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// A command that is killed after too long a time; `tcp` puts it on a network of its own if possible.
pub fn bounded(program: impl AsRef<OsStr>, tcp: bool) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", TIMEOUT_SECONDS]);
    if tcp && has_own_network() {
        command.args(["unshare", "-n", "sh", "-c", LOOPBACK, "sh"]);
    }
    command.arg(program).stdin(Stdio::null());
    command
}

/// Output of a command; `None` when it cannot be run or fails.
pub fn text(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Output of a command that must succeed.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("Failed to run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?} ended with {}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Times of jobs.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// From the first start to the last end.
    pub wall_seconds: f64,
    /// Processor time of all their processes.
    pub cpu_seconds: f64,
    /// Time inside MPI of the first job, from `programs/inside.c`.
    pub inside_seconds: Option<f64>,
}

/// Starts the commands at once and waits for all of them. Returns the time and each one's output.
pub fn time(commands: Vec<Command>) -> Result<(Spent, Vec<String>)> {
    let cpu = children_seconds()?;
    let start = Instant::now();
    let mut children = Vec::new();
    for mut command in commands {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        children.push(command.spawn().with_context(|| format!("Failed to run {command:?}"))?);
    }
    let (mut texts, mut inside_seconds) = (Vec::new(), None);
    for child in children {
        let output = child.wait_with_output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "a measured job ended with {}: {errors}", output.status);
        let told = errors.lines().find_map(|line| line.strip_prefix("inside ")?.parse().ok());
        inside_seconds = inside_seconds.or(told);
        texts.push(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let wall_seconds = start.elapsed().as_secs_f64();
    Ok((Spent { wall_seconds, cpu_seconds: children_seconds()? - cpu, inside_seconds }, texts))
}

/// Processor time of all descendants that have been waited for.
fn children_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("Failed to read /proc/self/stat")?;
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    // proc(5): cutime and cstime are fields 16 and 17, counted from 1; the first here is field 3. In ticks of 10 ms.
    let ticks: u64 = fields.iter().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}

/// The median; of an even number, the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
        assert!(median(&[]).is_nan());
    }
}
