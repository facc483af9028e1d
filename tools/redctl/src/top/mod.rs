//! `redctl top`: a job on the whole terminal.
//!
//! One thread draws and reads keys. Another asks the job for its status once a second, and each key's request has a
//! thread of its own: no thread waits for another.

mod draw;
mod screen;

use anyhow::{Context, Result, anyhow};
use command_line::UsageError;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use job_status::{Status, ask};
use redrt_wire::tree::Question;
use running_jobs::Found;
use screen::{Action, Screen};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// Interval of the questions for the status.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time to wait for a key before the answers are looked at.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// News from the threads that ask the job.
enum News {
    Status(Box<Status>),
    /// The job does not answer: most likely it has ended.
    Silent(String),
    /// The outcome of a key's request, with its name.
    Answered(String, Result<()>),
}

/// Shows the job until the user leaves.
///
/// # Errors
/// When there is no such job, or no terminal.
pub fn run(wanted: Option<&str>) -> Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let why = "redctl top needs a terminal; redctl status --json is for scripts";
        return Err(UsageError(why.into()).into());
    }
    let found = Arc::new(running_jobs::find(wanted)?);
    let (tell, news) = mpsc::channel();
    let (asks, of_asks) = (found.clone(), tell.clone());
    thread::Builder::new().name("redctl-look".into()).spawn(move || poll(&asks, &of_asks))?;
    let mut terminal = ratatui::try_init().context("Failed to use the terminal")?;
    let outcome = serve(&mut terminal, &found, &tell, &news);
    ratatui::restore();
    outcome
}

/// Asks for the status once a second, until the receiver is gone.
fn poll(found: &Found, tell: &Sender<News>) {
    loop {
        let news = match Status::of(found) {
            Ok(status) => News::Status(Box::new(status)),
            Err(error) => News::Silent(format!("{error:#}")),
        };
        if tell.send(news).is_err() {
            return;
        }
        thread::sleep(INTERVAL);
    }
}

fn serve(
    terminal: &mut ratatui::DefaultTerminal,
    found: &Arc<Found>,
    tell: &Sender<News>,
    news: &Receiver<News>,
) -> Result<()> {
    let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut screen = Screen::default();
    loop {
        for news in news.try_iter() {
            match news {
                News::Status(status) => screen.update(*status),
                News::Silent(why) => screen.message = why,
                News::Answered(what, outcome) => screen.answered(&what, outcome),
            }
        }
        terminal.draw(|frame| draw::draw(frame, &screen, is_coloured))?;
        if !event::poll(KEY_WAIT)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Ok(());
        }
        match screen.press(key.code) {
            Some(Action::Quit) => return Ok(()),
            Some(Action::Ask { question, what }) => {
                screen.message = format!("{what} …");
                request(found, tell, question, what)?;
            }
            None => {}
        }
    }
}

/// Asks the job for something on a thread of its own, as the answer may take long.
fn request(found: &Arc<Found>, tell: &Sender<News>, question: Question, what: String) -> Result<()> {
    let (found, tell) = (found.clone(), tell.clone());
    thread::Builder::new().name("redctl-ask".into()).spawn(move || {
        let outcome = match ask(&found, question) {
            Ok(answer) if answer.is_empty() => Ok(()),
            Ok(answer) => Err(anyhow!(answer)),
            Err(error) => Err(error),
        };
        // Fails when the user has left.
        let _ = tell.send(News::Answered(what, outcome));
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Status;
    use serde_json::json;

    /// The status of a job, in the JSON of `redrun`.
    pub fn status() -> Status {
        let replica = |name: &str, host: &str, state: &str| {
            json!({
                "replica": name, "host": host, "state": state, "retention_bytes": 96, "retention_messages": 1,
                "window_messages": 3, "stall_ms_max": 1.5, "memory_bytes": 1 << 24, "waits_s": 0.0,
            })
        };
        let progress = json!({
            "round": 1, "done_bytes": 1u64 << 29, "total_bytes": 1u64 << 30, "bytes_per_second": 1e9,
        });
        serde_json::from_value(json!({
            "job": "00ab", "program": "./app", "user": "me", "state": "running", "elapsed_s": 12.3, "view": 3, "terminal": "own",
            "root": { "host": "h1", "hosts": [] },
            "ranks": [
                { "rank": 0, "degree": 2, "live": 2,
                  "replicas": [replica("0.0", "h1", "running"), replica("0.1", "h2", "running")] },
                { "rank": 1, "degree": 2, "live": 1,
                  "replicas": [replica("1.0", "h1", "running"), replica("1.1", "h2", "lost")] },
            ],
            "redundancy": { "protected_share": 0.825, "ranks": [] },
            "checkpoint": { "newest": 4, "under_way": 5, "progress": null },
            "moves": [{ "replica": "0.1", "to": null }],
            "clones": [{ "replica": "1.1", "source": "1.0", "host": "h3", "progress": progress }],
            "hosts": [
                { "host": "h1", "state": "alive", "processes": 2 }, { "host": "h2", "state": "dead", "processes": 1 },
            ],
        }))
        .unwrap()
    }
}
