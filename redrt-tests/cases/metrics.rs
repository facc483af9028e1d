//! Metrics of a running job (`--metrics`).

use redrt_tests::{Job, Running, compile};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Address of the metrics, from the job's message.
fn address(job: &Running) -> String {
    let line = job.wait_for_line("metrics are at http://");
    line.strip_suffix("/metrics").expect("the path is behind it").to_owned()
}

/// Head and body of an answer.
fn ask(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("redrun listens");
    write!(stream, "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("redrun reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("redrun answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    (head.to_owned(), body.to_owned())
}

/// Value of a metric with its labels.
fn value(text: &str, metric: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == metric))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn a_running_job_tells_its_health_its_losses_and_its_verdicts() {
    let job = Job::new(3, &compile("until")).degree(3).options(&["--spares", "1", "--metrics", "0"]);
    let job = job.inject("stdout:1.2@#1");
    let ended = crate::while_computing(Duration::from_secs(120), job, |job| {
        let address = address(job);
        let scrape = || ask(&address, "GET /metrics").1;
        let now = |metric: &str| value(&scrape(), metric).unwrap_or(f64::NAN);
        assert_eq!(now("redrt_spheres{health=\"lost\"}"), 0.0);
        job.wait_for("recovered", 1);
        let text = scrape();
        for (metric, expected) in [
            ("redrt_verdicts_total{about=\"output\",finding=\"replica-corrupt\"}", 1.0),
            ("redrt_injected_faults_total", 1.0),
            ("redrt_losses_total", 1.0),
            ("redrt_windows_total", 1.0),
            ("redrt_windows_open", 0.0),
            ("redrt_clones_total{step=\"done\"}", 1.0),
            ("redrt_spheres{health=\"whole\"}", 3.0),
            ("redrt_replicas{state=\"running\"}", 9.0),
            ("redrt_hosts{state=\"alive\"}", 1.0),
        ] {
            assert_eq!(value(&text, metric), Some(expected), "{metric} in\n{text}");
        }
        assert!(value(&text, "redrt_window_time_seconds_total").is_some_and(|time| time > 0.0), "{text}");
        assert!(text.contains("redrt_strikes_total{host=\"") && text.ends_with("# EOF\n"), "{text}");
        // Processes send their counters now and then; counters only grow.
        job.wait_until("messages that were compared", |_| now("redrt_messages_compared_total") > 0.0);
        let before = now("redrt_messages_compared_total");
        job.kill_replica("2.0");
        job.wait_until("a window that is closed", |_| now("redrt_windows_total") == 2.0);
        assert!(now("redrt_messages_compared_total") >= before);
    });
    let ended = ended.ended_with(0);
    assert_eq!(ended.number("recovered"), 2, "{ended}");
}

#[test]
fn what_is_not_asked_for_rightly_is_refused_and_the_job_goes_on() {
    let job = Job::new(3, &compile("until")).options(&["--metrics", "127.0.0.1:0"]);
    let _ = crate::disturbed(job, |job| {
        let address = address(job);
        for (request, says) in [
            ("GET /", "HTTP/1.1 404"),
            ("POST /metrics", "HTTP/1.1 405"),
            ("HEAD /metrics", "HTTP/1.1 200"),
            ("GET /metrics?x=y", "HTTP/1.1 200"),
        ] {
            let (head, _) = ask(&address, request);
            assert!(head.starts_with(says), "{request}: {head}");
        }
        // Clients that never send a request block no other client.
        let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&address).expect("redrun listens")).collect();
        assert!(ask(&address, "GET /metrics").1.contains("redrt_job_info{id="));
        drop(silent);
    });
}

#[test]
fn an_address_that_is_taken_is_one_clear_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it has an address").to_string();
    let ended = Job::new(3, &compile("until")).options(&["--metrics", &address]).run();
    assert_eq!((ended.code, ended.err.lines().count()), (Some(1), 1), "{ended}");
    assert!(ended.err.contains(&format!("Failed to listen on --metrics {address}: Address already in use")), "{ended}");
}
