//! HTTP access to a running job, for Prometheus (`--metrics`) and browsers (`--web`).

use super::run::Run;
use super::status::user_name;
use super::targets::Target;
use anyhow::{Context, Result};
use http_pages::{Answer, Asked, Pages, Site, openmetrics};
use nix::poll::{PollFd, PollFlags};
use redrt_wire::secret::Secret;
use say::Console;
use serde_json::json;
use std::net::SocketAddr;

/// Question of a client.
#[derive(Clone, Copy, Debug)]
pub enum About {
    /// Numbers for Prometheus.
    Metrics,
    /// The text of `redctl status --json`.
    Status,
}

const OF_METRICS: &[(&str, Answer<About>)] =
    &[("/metrics", Answer::Asked { question: About::Metrics, kind: openmetrics::KIND })];
const OF_WEB: &[(&str, Answer<About>)] = &[
    ("/", Answer::Fixed { text: include_str!("watching/page.html"), kind: "text/html; charset=utf-8" }),
    ("/status", Answer::Asked { question: About::Status, kind: "application/json" }),
    ("/events", Answer::Stream(About::Status)),
];

/// Listening sockets of both options, where given.
#[derive(Debug)]
pub struct Watching {
    metrics: Option<Pages<About>>,
    web: Option<Pages<About>>,
    token: String,
    /// File through which Prometheus finds the metrics.
    target: Option<Target>,
}

impl Watching {
    /// Listens where options ask for it. The token is the same for all coordinators of a job.
    ///
    /// # Errors
    /// When an address is not available.
    pub fn listen(metrics: Option<SocketAddr>, web: Option<SocketAddr>, secret: &Secret) -> Result<Self> {
        let token: String = secret.derive("redrt token of the page of a job").key()[..16].iter().map(hex).collect();
        let listen = |option: &str, address: Option<SocketAddr>, site: Site<About>| {
            let failed = |address| format!("Failed to listen on {option} {address}");
            address.map(|address| Pages::listen(address, site).with_context(|| failed(address))).transpose()
        };
        let of_metrics = Site { pages: OF_METRICS, lost: "the metrics are at /metrics\n", token: None };
        let of_web = Site { pages: OF_WEB, lost: "the page is at /\n", token: Some(token.clone()) };
        Ok(Self {
            metrics: listen("--metrics", metrics, of_metrics)?,
            web: listen("--web", web, of_web)?,
            token,
            target: None,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Pages<About>> {
        self.metrics.iter().chain(&self.web)
    }

    pub fn next_question(&self) -> Option<Asked<About>> {
        self.all().find_map(Pages::next_question)
    }

    /// Descriptors to poll for clients.
    pub fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.all().map(|pages| PollFd::new(pages.fd(), PollFlags::POLLIN))
    }

    /// Writes the file for Prometheus. Failure is only a warning.
    pub fn announce(&mut self, run: &Run<'_>, console: &Console) {
        let (Some(directory), Some(pages)) = (&run.job.metrics_targets, &self.metrics) else { return };
        let labels = json!({ "user": user_name(), "program": run.program_names() });
        let job = format!("{:016x}", run.number);
        let target = Target::write(directory, &job, &run.fleet.own_name(), pages.address(), &labels);
        self.target = target
            .inspect_err(|error| console.warning(&format!("Prometheus does not find the metrics: {error:#}")))
            .ok();
    }

    /// Addresses, as lines for the user.
    pub fn places(&self) -> Vec<String> {
        let metrics = self.metrics.iter().map(|pages| format!("metrics are at http://{}/metrics", pages.address()));
        let page = |pages: &Pages<About>| {
            format!("the job can be watched at http://{}/?token={}", pages.address(), self.token)
        };
        metrics.chain(self.web.iter().map(page)).collect()
    }
}

fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}
