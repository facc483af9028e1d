//! Pages for browsers: of a running job (`--web`) and of its log (`redreport --html`).

use redrt_tests::{Browser, Job, compile, prefix};
use serde_json::json;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_running_job_is_seen_in_a_browser() {
    let Some(browser) = Browser::start() else { return };
    let job = Job::new(3, &compile("until")).degree(2).options(&["--web", "0", "--checkpoint", "asked"]);
    let ended = crate::while_computing(Duration::from_secs(120), job, |job| {
        let address = job.wait_for_line("can be watched at ");
        browser.open(&address);
        browser.wait_until("document.querySelectorAll('.rank').length === 3");
        assert_eq!(browser.script("return document.querySelectorAll('.rank.short').length"), json!(0));
        let title = browser.script("return document.title");
        assert!(title.as_str().is_some_and(|title| title.ends_with("until: running")), "{title}");
        // A loss is shown without a click.
        job.kill_replica("1.1");
        browser.wait_until("document.querySelector('.rank.short')?.dataset.rank === '1'");
        let _ = browser.script("document.querySelector('.rank.short').click()");
        browser.wait_until("document.querySelectorAll('#detail tbody tr').length === 2");
        browser.wait_until("document.querySelector('#gaps tbody tr td')?.textContent === '1'");
        let pictures = browser.picture("job");
        assert!(pictures.iter().all(|picture| picture.metadata().is_ok_and(|data| data.len() > 5_000)), "{pictures:?}");
        // Without the token there is no answer, and the page loads nothing from elsewhere.
        browser.open(&address.replace("?token=", "?token=0"));
        assert_eq!(browser.script("return document.querySelectorAll('.rank').length"), json!(0));
        browser.open(&address);
        browser.wait_until("document.querySelectorAll('.rank').length === 3");
    });
    let _ = ended.ended_with(0);
    browser.wait_until("!document.getElementById('lost').hidden");
}

/// The page at the widths of a desk and of a telephone, light and dark.
#[test]
fn the_report_of_a_job_fits_any_screen() {
    let Some(browser) = Browser::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (log, page) = (directory.path().join("log.jsonl"), directory.path().join("report.html"));
    let job = Job::new(3, &compile("ring")).degree(3).inject("flip:1.1@#3,kill:2.0@#5").audit_at(&log);
    let ended = job.run().ended_with(0);
    let mut redreport = Command::new(prefix().join("bin/redreport"));
    let output = redreport.arg("--count-injected").arg("--html").arg(&page).arg(&log).output().unwrap();
    assert!(output.status.success(), "{ended}\n{}", String::from_utf8_lossy(&output.stderr));
    browser.open(&format!("file://{}", page.display()));
    let _ = browser.picture("report");
}
