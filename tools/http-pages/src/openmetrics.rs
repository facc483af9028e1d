//! Metrics as text for Prometheus (OpenMetrics).

use prometheus_client::encoding::{EncodeMetric, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Media type of the text.
pub const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Names and values of labels.
pub type Labels = Vec<(&'static str, String)>;

/// Metrics that are being gathered.
#[derive(Debug)]
pub struct Page(Registry);

impl Page {
    /// An empty page, with this prefix for all names.
    pub fn new(prefix: &str) -> Self {
        Self(Registry::with_prefix(prefix))
    }

    /// The text of the page.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0).expect("a string takes all");
        text
    }

    /// Adds constant labels.
    pub fn info(&mut self, name: &str, help: &str, labels: Vec<(&'static str, String)>) {
        self.0.register(name, help, Info::new(labels));
    }

    /// Adds gauges with labels.
    pub fn gauge(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Family::<Labels, Gauge>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).set(value as i64);
        }
        self.0.register(name, help, family);
    }

    /// Adds counters with labels.
    pub fn counter(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Family::<Labels, Counter>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).inc_by(value);
        }
        self.0.register(name, help, family);
    }

    /// Adds a counter.
    pub fn count(&mut self, name: &str, help: &str, value: u64) {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        self.0.register(name, help, counter);
    }

    /// Adds a gauge.
    pub fn value(&mut self, name: &str, help: &str, value: u64) {
        let gauge = Gauge::<i64>::default();
        gauge.set(value as i64);
        self.0.register(name, help, gauge);
    }

    /// Adds a metric in seconds.
    pub fn seconds(
        &mut self,
        name: &str,
        help: &str,
        metric: impl EncodeMetric + Send + Sync + std::fmt::Debug + 'static,
    ) {
        self.0.register_with_unit(name, help, Unit::Seconds, metric);
    }
}

/// A gauge of a duration.
pub fn seconds_gauge(time: Duration) -> Gauge<f64, AtomicU64> {
    let gauge = Gauge::<f64, AtomicU64>::default();
    gauge.set(time.as_secs_f64());
    gauge
}

/// Values by one label.
pub fn labelled<'a, K: ToString + 'a>(
    name: &'static str,
    values: &'a BTreeMap<K, u64>,
) -> impl Iterator<Item = (Labels, u64)> + 'a {
    values.iter().map(move |(key, value)| (vec![(name, key.to_string())], *value))
}
