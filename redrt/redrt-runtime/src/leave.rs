//! Leaving the job at once.

use super::control::Control;
use super::job;
use redrt_process::simulation;
use redrt_wire::control::FromAgent;
use redrt_wire::lack::Lack;

/// Ends this process, which lacks a resource of its host. The job goes on if the rank has another replica.
pub fn unable<T>(lack: Lack) -> T {
    last_words(&lack.to_string(), FromAgent::Unable(lack));
    exit(1)
}

/// Ends the whole job with this exit code. `message` is for the user; it is empty when the application asked for the
/// end.
pub fn abort<T>(code: i32, message: String) -> T {
    last_words(&message.clone(), FromAgent::Abort { code, message });
    exit(if code == 0 { 1 } else { code })
}

fn exit(code: i32) -> ! {
    simulation::end_process();
    std::process::exit(code)
}

/// Reports the end to redrun and waits for it, or prints the message where there is no redrun.
fn last_words(message: &str, words: FromAgent) {
    if let Some(job) = job()
        && let Some(control) = job.control
    {
        if control.send(&words).is_ok() {
            simulation::end_process();
            // The daemon ends this process. The agent thread notices if the daemon is gone.
            loop {
                std::thread::park();
            }
        }
        say_if_closed(control);
    }
    if !message.is_empty() {
        redrt_process::say(format_args!("redrt: {message}"));
    }
}

/// Reports the reason if nothing can be sent to the daemon because the program has closed the descriptor.
pub fn say_if_closed(control: &Control) {
    if super::is_closed(control.fd()) {
        redrt_process::say(
            "redrt: the program has closed all descriptors after MPI_Init, redrun's connection with them",
        );
    }
}
