//! Facts about a host for a pool: `redrtd --probe` prints them.

use anyhow::{Context, Result};
use spare_pool::Facts;
use std::fs;

/// Facts about this host.
pub fn here() -> Result<Facts> {
    let processor = cloner::host::facts().context("Failed to find out what this processor can do")?;
    let memory = fs::read_to_string("/proc/meminfo").context("Failed to read /proc/meminfo")?;
    let load = fs::read_to_string("/proc/loadavg").context("Failed to read /proc/loadavg")?;
    let mut cpu_features: std::collections::BTreeSet<_> = processor.processor_flags.into_iter().collect();
    cpu_features.insert(processor.machine);
    Ok(Facts {
        version: env!("CARGO_PKG_VERSION").into(),
        memory_bytes: available_bytes(&memory).context("/proc/meminfo does not say what is available")?,
        cpu_features,
        cpu_count: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        load_milli: load_milli(&load).context("/proc/loadavg is not understood")?,
    })
}

fn available_bytes(memory: &str) -> Option<u64> {
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn load_milli(load: &str) -> Option<u64> {
    let (whole, thousandths) = load.split_whitespace().next()?.split_once('.')?;
    let digits: String = thousandths.chars().chain("000".chars()).take(3).collect();
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(digits.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_facts() {
        let facts = here().unwrap();
        assert!(facts.memory_bytes > 0 && facts.cpu_count > 0 && facts.cpu_features.contains("x86_64"), "{facts:?}");
        let again: Facts = serde_json::from_str(&serde_json::to_string(&facts).unwrap()).unwrap();
        assert_eq!(again, facts);
    }

    #[test]
    fn the_files_of_proc_are_understood() {
        assert_eq!(available_bytes("MemTotal: 9 kB\nMemAvailable:    4 kB\n"), Some(4096));
        assert_eq!(available_bytes("MemTotal: 9 kB\n"), None);
        assert_eq!(load_milli("1.25 0.9 0.1 1/200 77"), Some(1250));
        assert_eq!(load_milli("x"), None);
    }
}
