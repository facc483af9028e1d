//! Parts of sentences.

use redrt_types::ReplicaId;
use replication_manager::{CheckpointFailure, Refusal};
use sdc_detect::{Difference, Element};
use std::time::Duration;

/// A duration such as `12.3 ms` or `4.56 s`.
#[must_use]
pub fn time_text(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

/// A share from 0 to 1 in per cent. `100 %` means the whole: everything less is rounded down.
#[must_use]
pub fn share_text(share: f64) -> String {
    if share >= 1.0 { "100 %".to_owned() } else { format!("{:.1} %", (share * 1e3).floor() / 10.0) }
}

/// A number with its noun: `1 message`, `2 messages`.
#[must_use]
pub fn counted(count: u64, thing: &str) -> String {
    match (count, thing.ends_with("ch") || thing.ends_with('s')) {
        (1, _) => format!("1 {thing}"),
        (_, true) => format!("{count} {thing}es"),
        _ => format!("{count} {thing}s"),
    }
}

/// A size such as `1.5 GiB`.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A refusal in words: the refusing end, the refused peer, and the reason.
pub fn refusal_text(refusal: &Refusal) -> String {
    let by = match refusal.by {
        Some(by) => format!("replica {by} refused a frame"),
        None => "redrun refused a message".to_owned(),
    };
    match refusal.peer {
        Some(peer) => format!("{by}: replica {peer} {}", refusal.what),
        None => format!("{by}: somebody {}", refusal.what),
    }
}

/// Reason for a failed checkpoint, with the hosts of replicas in it. `host` names the host of a replica.
#[must_use]
pub fn line_failure(why: &CheckpointFailure, host: &dyn Fn(ReplicaId) -> String) -> String {
    why.told(&|replica| format!("{replica} on {}", host(replica)))
}

/// Command that drains a host in Slurm. Names are quoted for a shell.
#[must_use]
pub fn drain_command(host: &str, reason: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = host.chars().map(plain).collect();
    format!("scontrol update nodename={name} state=drain reason=\"redrt: {reason}\"")
}

/// A difference in words: place, number of bits, and values.
#[must_use]
pub fn in_words(difference: &Difference) -> String {
    let Difference { offset, index, bit_count, .. } = difference;
    let bits = if *bit_count == 1 { "1 bit differs".to_owned() } else { format!("{bit_count} bits differ") };
    let mut text = match difference.element {
        Element::Unknown => format!("{bits}, the first in byte {offset}"),
        element => {
            format!("{bits}, the first in byte {offset}, element {index} ({})", format!("{element:?}").to_lowercase())
        }
    };
    if let Some([one, other]) = &difference.values {
        text += &format!(": {one} and {other}");
    }
    if let Some(ulps) = difference.ulps {
        text += &format!(", {ulps} ulp apart");
    }
    if let Some([one, other]) = difference.lengths {
        text += &format!("; lengths {one} and {other}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use sdc_detect::difference;

    #[test]
    fn a_difference_is_told_with_its_place_and_values() {
        let found = difference(&[5, 0, 0, 0], &[7, 0, 0, 0], Element::I32).unwrap();
        assert_eq!(in_words(&found), "1 bit differs, the first in byte 0, element 0 (i32): 5 and 7");
    }
}
