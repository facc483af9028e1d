//! The hosts of a site, as logs of jobs show them.

use super::Unknown;
use planner::site::{HostFacts, Mtbf};

/// Facts about the hosts of the site.
pub struct Site {
    sound: Vec<HostFacts>,
    /// Names of hosts that corrupt data.
    sick: Vec<String>,
}

impl Site {
    /// Sorts these hosts into sound and sick ones.
    pub fn new(hosts: Vec<HostFacts>) -> Self {
        let (sick, sound): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|host| host.is_sick);
        Self { sound, sick: sick.into_iter().map(|host| host.host).collect() }
    }

    /// Mean time between failures of the hosts that jobs get. Sick hosts are drained, so their failures do not count.
    pub fn mtbf(&self) -> Result<(f64, String), Unknown> {
        let none = match self.sick.as_slice() {
            [] => "--mtbf is needed, for no job was learned; see redplan learn",
            _ => "--mtbf is needed, for jobs were learned on sick hosts only; see redplan known",
        };
        let mtbf = Mtbf::new(&self.sound).ok_or_else(|| Unknown(none.into()))?;
        Ok((mtbf.estimate_h * planner::HOUR_S, mtbf_note(&mtbf)))
    }

    /// Number of `hosts` that a job can use, and the reason if it is not all.
    pub fn usable(&self, hosts: Option<u32>) -> Result<(Option<u32>, Option<String>), Unknown> {
        if self.sick.is_empty() {
            return Ok((hosts, None));
        }
        let names = self.sick.join(", ");
        let Some(given) = hosts else {
            return Ok((None, Some(format!("Sick, so leave them out of --hosts of redrun: {names}"))));
        };
        let left = given.saturating_sub(u32::try_from(self.sick.len()).unwrap_or(u32::MAX));
        if left == 0 {
            return Err(Unknown(format!("--hosts {given}: as many or more are sick: {names}")));
        }
        Ok((Some(left), Some(format!("Of {given} hosts, {left} are counted on, without those that are sick: {names}"))))
    }
}

/// The time between failures, in one line.
pub fn mtbf_note(mtbf: &Mtbf) -> String {
    let Mtbf { hours, losses, estimate_h, low_h } = mtbf;
    match losses {
        0 => format!("No host was lost in {hours:.1} host hours: with 95 % confidence one lives {low_h:.1} h or more"),
        _ => format!(
            "Hosts lost: {losses} in {hours:.1} host hours, one every {estimate_h:.1} h; with 95 % confidence one lives {low_h:.1} h or more"
        ),
    }
}
