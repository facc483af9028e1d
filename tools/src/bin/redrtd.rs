//! The daemon `redrun` starts on every host. Not meant to be run by hand: it reads the job's secret from standard input.

use anyhow::{Context, Result, bail};
use redrt_tools::redrtd;
use redrt_wire::auth::Secret;
use std::net::SocketAddr;

fn main() {
    if let Err(error) = run() {
        eprintln!("redrtd: {error:#}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (Some("--version"), None, None) => {
            println!("redrtd {}", env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        (Some("--connect"), Some(address), None) => address.parse().context("Failed to read the address of redrun")?,
        _ => bail!("usage: redrtd --connect ADDRESS:PORT (started by redrun, which passes a secret on standard input)"),
    };
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("Failed to read the job's secret")?;
    let secret = Secret::from_hex(line.trim_end()).context("Standard input holds no secret")?;
    redrtd::run(address, &secret)
}
