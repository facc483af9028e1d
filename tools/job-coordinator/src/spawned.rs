//! Other jobs: the ones that processes of this job spawn, and the one that spawned it (MPI-5.0 §11.8).
//!
//! ```text
//!   process ── Spawn ─▶ Start ── redrun starts a job ──▶ NotStarted, or ended before it was met ─▶ the process is told
//!           ── Met ───▶ from now on both end together:   ended with a failure ─▶ this job ends with its exit code
//!           ── Name ──▶ answered here in the uppermost job, else asked above
//! ```
//! Enters: requests of processes; news of `redrun` about other jobs ([`JobNews`]); the user's signals. Leaves
//! ([`Effect`]): orders about other jobs ([`JobOrder`]), answers for processes, the failure of a job that was met.
//!
//! The trap: a process of an earlier life of this job has asked, and another one with the same name asks under the same
//! number after the return. So questions are forgotten when a life ends, and their answers go to nobody.

use super::mutation::{self, Mutation};
use redrt_types::{ReplicaId, World};
use redrt_wire::dynamic::{Answer, Command, NameAnswer, NameRequest, Request};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Number of a job that this one has spawned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct JobNumber(pub u64);

/// An order about other jobs.
#[derive(Clone, Debug)]
pub enum JobOrder {
    /// Start a job. Answered by [`JobNews::NotStarted`] or, at its end, [`JobNews::Ended`].
    Start {
        /// Its number.
        job: JobNumber,
        /// The process that asks for it.
        replica: ReplicaId,
        /// Programs to run.
        commands: Vec<Command>,
        /// Port at which the process waits for the job.
        port: String,
    },
    /// Answer the question of a spawned job about a name.
    Answer {
        /// The job that asks.
        job: JobNumber,
        /// Number of its question.
        question: u64,
        /// The answer.
        answer: NameAnswer,
    },
    /// Ask the job above about a name. Answered by [`JobNews::Answered`].
    Ask {
        /// Number of the question.
        question: u64,
        /// The request.
        request: NameRequest,
    },
    /// Pass a signal for the program on to all spawned jobs.
    Signal(i32),
    /// Have all spawned jobs stand still, or go on.
    Suspend(bool),
    /// End all spawned jobs.
    End,
}

/// News about other jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobNews {
    /// A job could not be started.
    NotStarted {
        /// Its number.
        job: JobNumber,
        /// The reason, for the process that asked for it.
        why: String,
    },
    /// A spawned job has an error for the user.
    Error {
        /// Its number.
        job: JobNumber,
        /// The line to show.
        line: String,
    },
    /// A spawned job asks about a name.
    Name {
        /// Its number.
        job: JobNumber,
        /// Number of its question.
        question: u64,
        /// The request.
        request: NameRequest,
    },
    /// A spawned job has ended.
    Ended {
        /// Its number.
        job: JobNumber,
        /// Its exit code.
        code: i32,
    },
    /// The job above answers a question about a name.
    Answered {
        /// Number of the question.
        question: u64,
        /// The answer.
        answer: NameAnswer,
    },
}

/// A process, and the number of its question.
pub(super) type Question = (ReplicaId, u64);

/// The origin of a question about a name.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Caller {
    Process(Question),
    Spawned(JobNumber, u64),
}

/// A spawned job that has not ended.
#[derive(Debug, Serialize, Deserialize)]
enum Spawned {
    /// A process waits for it. None after a return: that process is gone.
    Awaited {
        question: Option<Question>,
        /// Its errors so far: the reason if it does not come.
        errors: Vec<String>,
    },
    /// Both jobs end together.
    Met,
}

/// A consequence of an input.
#[derive(Debug)]
pub(super) enum Effect {
    Order(JobOrder),
    Answer(Question, Answer),
    /// An error line for the user.
    Show(String),
    /// A job that was met has failed with this exit code.
    Failed(i32),
}

/// The other jobs: see the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OtherJobs {
    /// True if another job has spawned this one, and answers questions about names.
    is_spawned: bool,
    spawned: BTreeMap<JobNumber, Spawned>,
    /// Number of jobs that were spawned.
    count: u64,
    /// Exit codes of jobs that failed before the message that they were met arrived.
    failed: BTreeMap<Question, i32>,
    /// Exit code of the first job that failed after it was met.
    code: i32,
    /// True once all were ordered to end: their exit codes have no effect, and their errors are not shown.
    is_ending: bool,
    names: BTreeMap<String, String>,
    /// Questions that the job above has not answered.
    asked: BTreeMap<u64, Caller>,
    asked_count: u64,
    /// Always drained before the state is saved.
    #[serde(skip)]
    effects: VecDeque<Effect>,
}

impl OtherJobs {
    /// A job that has spawned none.
    pub fn new(is_spawned: bool) -> Self {
        Self {
            is_spawned,
            spawned: BTreeMap::new(),
            count: 0,
            failed: BTreeMap::new(),
            code: 0,
            is_ending: false,
            names: BTreeMap::new(),
            asked: BTreeMap::new(),
            asked_count: 0,
            effects: VecDeque::new(),
        }
    }

    /// Exit code of the first spawned job that failed. 0 if none has.
    pub fn code(&self) -> i32 {
        self.code
    }

    /// Handles the request of a process.
    pub fn ask(&mut self, question: Question, request: Request) {
        match request {
            Request::Spawn { commands, port } => self.spawn(question, commands, port),
            Request::Met => self.met(question),
            Request::Name(request) => self.ask_name(Caller::Process(question), request),
            // Answered by the machine of checkpoints.
            Request::Checkpoint => {}
        }
    }

    /// Handles news about another job.
    pub fn handle(&mut self, news: JobNews) {
        match news {
            JobNews::NotStarted { job, why } => {
                if let Some(Spawned::Awaited { question: Some(question), .. }) = self.spawned.remove(&job) {
                    self.answer(question, Answer::NotSpawned(why));
                }
            }
            JobNews::Error { .. } if self.is_ending => {}
            JobNews::Error { job, line } => match self.spawned.get_mut(&job) {
                Some(Spawned::Awaited { errors, .. }) => errors.push(line),
                Some(Spawned::Met) => self.effects.push_back(Effect::Show(line)),
                None => {}
            },
            JobNews::Name { job, question, request } => self.ask_name(Caller::Spawned(job, question), request),
            JobNews::Ended { job, code } => self.ended(job, code),
            JobNews::Answered { question, answer } => {
                if let Some(caller) = self.asked.remove(&question) {
                    self.answer_name(caller, answer);
                }
            }
        }
    }

    /// Ends all spawned jobs, because this one ends.
    pub fn end(&mut self) {
        self.is_ending = true;
        self.order_all(JobOrder::End);
    }

    /// Gives all spawned jobs this order. None is given if there are no such jobs.
    pub fn order_all(&mut self, order: JobOrder) {
        if !self.spawned.is_empty() {
            self.effects.push_back(Effect::Order(order));
        }
    }

    /// Begins another life of this job: all processes are gone, with their questions.
    pub fn begin_life(&mut self) {
        if mutation::is(Mutation::QuestionsOutliveLife) {
            return;
        }
        self.failed.clear();
        self.asked.retain(|_, caller| matches!(caller, Caller::Spawned(..)));
        for spawned in self.spawned.values_mut() {
            if let Spawned::Awaited { question, .. } = spawned {
                *question = None;
            }
        }
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn spawn(&mut self, question: Question, commands: Vec<Command>, port: String) {
        let counts = || commands.iter().map(|command| u64::from(command.rank_count));
        if commands.is_empty()
            || counts().any(|count| count == 0)
            || counts().sum::<u64>() > World::RANK_COUNT_MAX.into()
        {
            let why = format!("between 1 and {} processes can be started", World::RANK_COUNT_MAX);
            return self.answer(question, Answer::NotSpawned(why));
        }
        let job = JobNumber(self.count);
        self.count += 1;
        self.spawned.insert(job, Spawned::Awaited { question: Some(question), errors: Vec::new() });
        self.effects.push_back(Effect::Order(JobOrder::Start { job, replica: question.0, commands, port }));
    }

    fn met(&mut self, by: Question) {
        let is_awaited =
            |spawned: &&mut Spawned| matches!(spawned, Spawned::Awaited { question, .. } if *question == Some(by));
        if let Some(spawned) = self.spawned.values_mut().find(is_awaited) {
            *spawned = Spawned::Met;
        } else if let Some(code) = self.failed.remove(&by) {
            // It was met, and has failed since.
            self.effects.push_back(Effect::Failed(code));
        }
    }

    fn ended(&mut self, job: JobNumber, code: i32) {
        match self.spawned.remove(&job) {
            Some(Spawned::Met) if code != 0 => {
                self.code = if self.code == 0 { code } else { self.code };
                self.effects.push_back(Effect::Failed(code));
            }
            Some(Spawned::Awaited { question: Some(question), errors }) => {
                let why = match errors.is_empty() {
                    true => format!("the program ended with exit code {code} before it had called MPI_Init"),
                    false => errors.join("; "),
                };
                if code != 0 && !mutation::is(Mutation::FailureBeforeMetForgotten) {
                    self.failed.insert(question, code);
                }
                self.answer(question, Answer::NotSpawned(why));
            }
            Some(Spawned::Met | Spawned::Awaited { .. }) | None => {}
        }
    }

    fn ask_name(&mut self, caller: Caller, request: NameRequest) {
        if self.is_spawned {
            let question = self.asked_count;
            self.asked_count += 1;
            self.asked.insert(question, caller);
            return self.effects.push_back(Effect::Order(JobOrder::Ask { question, request }));
        }
        let answer = match request {
            NameRequest::Publish { service, .. }
                if self.names.contains_key(&service) && !mutation::is(Mutation::NamePublishedTwice) =>
            {
                NameAnswer::Taken
            }
            NameRequest::Publish { service, port } => {
                self.names.insert(service, port);
                NameAnswer::Done
            }
            NameRequest::Unpublish { service } => match self.names.remove(&service) {
                Some(_) => NameAnswer::Done,
                None => NameAnswer::Unknown,
            },
            NameRequest::Lookup { service } => {
                self.names.get(&service).cloned().map_or(NameAnswer::Unknown, NameAnswer::Port)
            }
        };
        self.answer_name(caller, answer);
    }

    fn answer_name(&mut self, caller: Caller, answer: NameAnswer) {
        match caller {
            Caller::Process(question) => self.answer(question, Answer::Name(answer)),
            Caller::Spawned(job, question) => {
                self.effects.push_back(Effect::Order(JobOrder::Answer { job, question, answer }));
            }
        }
    }

    fn answer(&mut self, question: Question, answer: Answer) {
        self.effects.push_back(Effect::Answer(question, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(rank_count: u32) -> Command {
        let [program, directory] = ["worker", "/"].map(Into::into);
        let (arguments, path, hosts, initial_errhandler) = (Vec::new(), None, None, None);
        Command { program, arguments, rank_count, directory, path, hosts, initial_errhandler }
    }

    /// Effects as text.
    fn follows(jobs: &mut OtherJobs) -> Vec<String> {
        let words = |effect| match effect {
            Effect::Order(JobOrder::Start { job, .. }) => format!("start {}", job.0),
            Effect::Order(order) => format!("{order:?}"),
            Effect::Answer((_, number), answer) => format!("{number}: {answer:?}"),
            Effect::Show(line) => line,
            Effect::Failed(code) => format!("failed {code}"),
        };
        std::iter::from_fn(|| jobs.poll_effect()).map(words).collect()
    }

    #[test]
    fn a_job_that_ends_before_it_is_met_fails_its_spawn_only() {
        let (mut jobs, asker) = (OtherJobs::new(false), ReplicaId::new(0, 0));
        let spawn = |count| Request::Spawn { commands: vec![command(count)], port: "p".into() };
        jobs.ask((asker, 1), spawn(0));
        assert!(follows(&mut jobs)[0].contains("between 1 and"));
        jobs.ask((asker, 2), spawn(1));
        jobs.handle(JobNews::Error { job: JobNumber(0), line: "no such program".into() });
        jobs.handle(JobNews::Ended { job: JobNumber(0), code: 127 });
        assert_eq!(follows(&mut jobs), ["start 0", "2: NotSpawned(\"no such program\")"]);
        assert_eq!(jobs.code(), 0);
        jobs.ask((asker, 3), spawn(1));
        jobs.ask((asker, 3), Request::Met);
        jobs.handle(JobNews::Error { job: JobNumber(1), line: "it is wrong".into() });
        jobs.handle(JobNews::Ended { job: JobNumber(1), code: 3 });
        assert_eq!(follows(&mut jobs), ["start 1", "it is wrong", "failed 3"]);
        assert_eq!(jobs.code(), 3);
        jobs.end();
        assert!(follows(&mut jobs).is_empty(), "there is none to end");
    }

    /// The end of the new job may overtake the message of the process that has met it.
    #[test]
    fn a_failure_before_the_message_of_the_meeting_counts() {
        let (mut jobs, asker) = (OtherJobs::new(false), ReplicaId::new(0, 0));
        jobs.ask((asker, 1), Request::Spawn { commands: vec![command(1)], port: "p".into() });
        jobs.handle(JobNews::Ended { job: JobNumber(0), code: 7 });
        jobs.ask((asker, 1), Request::Met);
        assert_eq!(follows(&mut jobs).last().map(String::as_str), Some("failed 7"));
    }

    #[test]
    fn names_are_kept_by_the_uppermost_job() {
        let publish = || NameRequest::Publish { service: "s".into(), port: "p".into() };
        let mut jobs = OtherJobs::new(false);
        jobs.handle(JobNews::Name { job: JobNumber(4), question: 9, request: publish() });
        jobs.ask((ReplicaId::new(1, 0), 1), Request::Name(publish()));
        assert_eq!(follows(&mut jobs), ["Answer { job: JobNumber(4), question: 9, answer: Done }", "1: Name(Taken)"]);
        let mut below = OtherJobs::new(true);
        below.ask((ReplicaId::new(1, 0), 1), Request::Name(publish()));
        below.handle(JobNews::Answered { question: 0, answer: NameAnswer::Taken });
        assert!(follows(&mut below)[1].contains("1: Name(Taken)"));
    }
}
