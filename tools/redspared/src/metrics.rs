//! `redspared --metrics`: the pool for Prometheus.

use anyhow::{Context, Result};
use http_pages::openmetrics::{self, Page, labelled};
use http_pages::{Answer, Pages, Site};
use spare_pool::Pool;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

const PAGES: &[(&str, Answer<()>)] = &[("/metrics", Answer::Asked { question: (), kind: openmetrics::KIND })];

/// Starts the page of metrics at this address.
///
/// # Errors
/// When the address cannot be bound.
pub fn listen(address: SocketAddr) -> Result<Pages<()>> {
    let site = Site { pages: PAGES, lost: "the metrics are at /metrics\n", token: None };
    Pages::listen(address, site).with_context(|| format!("Failed to listen on --metrics {address}"))
}

/// The page in the format of OpenMetrics.
pub fn text(pool: &Pool, connected_count: usize, now: Duration) -> String {
    let mut page = Page::new("redrt_pool");
    page.info("daemon", "The daemon", vec![("version", env!("CARGO_PKG_VERSION").to_owned())]);
    let (mut states, mut places, mut leased) = (BTreeMap::<_, u64>::new(), 0, 0);
    for host in pool.hosts(now) {
        *states.entry(host.state()).or_default() += 1;
        places += u64::from(host.spare.slot_count);
        leased += u64::from(host.leased_count);
    }
    page.gauge("hosts", "Hosts by state", labelled("state", &states));
    page.value("places", "Places for copies on all hosts", places);
    page.value("leased_places", "Of them, those that jobs have", leased);
    page.value("jobs", "Jobs that are connected", connected_count as u64);
    page.value("waiting_requests", "Requests that wait for a place", pool.waiting().count() as u64);
    page.text()
}
