//! Questions of a process to `redrun`: to start a job, to take a checkpoint, and for names of ports.

use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_engine as engine;
use redrt_engine::contact;
use redrt_runtime as runtime;
use redrt_wire::control::FromAgent;
use redrt_wire::dynamic::{Answer, NameAnswer, NameRequest, Request};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

process_local! {
    /// Answers that have come, by the number of their question.
    static ANSWERS: LazyLock<Mutex<HashMap<u64, Answer>>> = LazyLock::new(Mutex::default);
    static NEXT: AtomicU64 = AtomicU64::new(0);
}

/// A question that was asked.
pub struct Question(u64);

impl Question {
    /// Sends the question. `code` is the error class if there is no `redrun`.
    ///
    /// # Errors
    /// `code`, in a program that was not started by `redrun`.
    pub fn ask(request: Request, code: i32) -> Result<Self> {
        let question = Self(NEXT.fetch_add(1, Ordering::Relaxed));
        question.say(request, code)?;
        Ok(question)
    }

    /// Sends a further message about the question.
    ///
    /// # Errors
    /// As [`Question::ask`].
    pub fn say(&self, request: Request, code: i32) -> Result {
        let Some(control) = runtime::job().and_then(|job| job.control) else {
            fail!(code, "this program was not started by redrun, which would have to help: redrun -n 1 PROGRAM");
        };
        // If the daemon is gone, so is the job.
        let _ = control.send(&FromAgent::Dynamic(self.0, request));
        Ok(())
    }

    /// Takes the answer; `None` until it has come.
    pub fn answer(&self) -> Option<Answer> {
        ANSWERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0)
    }
}

/// Stores an answer of `redrun`, and wakes the thread that waits for it.
pub fn follow(number: u64, answer: Answer) {
    ANSWERS.lock().unwrap_or_else(PoisonError::into_inner).insert(number, answer);
    engine::cell().notify_waiting();
}

/// Asks about a name, and waits for the answer.
///
/// # Errors
/// `code`, in a program that was not started by `redrun`.
pub fn ask_name(request: NameRequest, code: i32) -> Result<NameAnswer> {
    contact::meet();
    let question = Question::ask(Request::Name(request), code)?;
    match engine::cell().wait_for(|_| question.answer()) {
        Answer::Name(answer) => Ok(answer),
        Answer::NotSpawned(_) | Answer::Checkpoint(_) => {
            Err(Error::new(code, "redrun has answered another question: mixed installations?"))
        }
    }
}
