//! Leaving the job: together in `MPI_Finalize`, or at once.

use super::control::Control;
use super::{agent, calls, job};
use crate::host;
use redrt_engine as engine;
use redrt_process::simulation;
use redrt_wire::control::FromAgent;
use redrt_wire::profile::ProcessProfile;

/// Waits until everything this process owes has arrived and every process of the job is leaving too: until then another
/// replica may need what only this one still has.
pub fn end() {
    let Some(job) = job() else { return };
    let Some(control) = job.control else { return };
    let cell = engine::cell();
    let mut said = None;
    cell.wait_for(|engine| {
        if agent::is_released() {
            return Some(());
        }
        if !engine.is_settled() {
            engine.flush();
        }
        let view = engine.view_number(&job.welcome.view);
        if engine.is_settled() && said != Some(view) {
            engine.flush();
            said = Some(view);
            let statistics = engine.statistics();
            let coverage = engine.coverage();
            let profile = engine.sent().map(|sent| Box::new(ProcessProfile { calls: calls::times(), sent }));
            if control.send(&FromAgent::Finalizing { view, statistics, coverage, profile }).is_err() {
                say_if_closed(control);
                std::process::abort();
            }
        }
        None
    });
}

/// Ends this process, which lacks something of its host; the job goes on if its rank has another replica.
pub fn unable<T>(why: String) -> T {
    last_words(&why.clone(), FromAgent::Unable { why });
    exit(1)
}

/// Ends the whole job with this exit code. `message` is for the user, empty when the application asked for the end.
pub fn abort<T>(code: i32, message: String) -> T {
    last_words(&message.clone(), FromAgent::Abort { code, message });
    exit(if code == 0 { 1 } else { code })
}

/// Ends this process.
fn exit(code: i32) -> ! {
    simulation::end_process();
    std::process::exit(code)
}

/// Tells redrun and waits for the end, or tells the user where there is no redrun.
fn last_words(message: &str, words: FromAgent) {
    if let Some(job) = job()
        && let Some(control) = job.control
    {
        if control.send(&words).is_ok() {
            simulation::end_process();
            // The daemon ends this process; if it cannot, its end is noticed by the agent thread.
            loop {
                std::thread::park();
            }
        }
        say_if_closed(control);
    }
    if !message.is_empty() {
        host::say(format_args!("redrt: {message}"));
    }
}

/// Says why nothing can be sent to the daemon, if it is the program that has seen to that.
pub fn say_if_closed(control: &Control) {
    if super::is_closed(control.fd()) {
        host::say("redrt: the program has closed all descriptors after MPI_Init, redrun's connection with them");
    }
}
