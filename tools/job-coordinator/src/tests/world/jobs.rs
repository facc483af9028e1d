//! Other jobs: processes ask for them and for names of ports, and are told once what came of it.

use super::Job;
use crate::{Input, JobNews, JobNumber, JobOrder};
use redrt_types::ReplicaId;
use redrt_wire::control::FromAgent;
use redrt_wire::daemon::FromDaemon;
use redrt_wire::dynamic::{Answer, Command, NameAnswer, NameRequest, Request};
use std::collections::{BTreeMap, BTreeSet};

/// A process, and the number of its question.
type Question = (ReplicaId, u64);

/// The jobs that were spawned, and the questions of processes.
#[derive(Default)]
pub struct Jobs {
    /// Number of questions in this life.
    count: u64,
    /// Questions of this life without an answer.
    asked: BTreeSet<Question>,
    /// Questions about names that the coordinator has, each with the right answer.
    right: BTreeMap<Question, NameAnswer>,
    names: BTreeMap<String, String>,
    /// Spawned jobs, and the question that each answers.
    spawned: BTreeMap<JobNumber, Question>,
    /// Spawned jobs that run.
    running: BTreeSet<JobNumber>,
    /// Questions whose job has come.
    came: BTreeSet<Question>,
    /// Exit codes of jobs that have failed, by question.
    failed: BTreeMap<Question, i32>,
    /// Questions of which the coordinator knows that the job was met.
    met: BTreeSet<Question>,
    /// Exit code of a failed job that the coordinator knows to have been met.
    fatal: Option<i32>,
}

fn command() -> Command {
    let (program, directory, arguments) = ("worker".into(), "/".into(), Vec::new());
    Command { program, arguments, rank_count: 1, directory, path: None, hosts: None, initial_errhandler: None }
}

impl Jobs {
    /// A request of a process, with its number. Numbers begin anew with the processes of each life.
    pub fn request(&mut self, random: &mut fastrand::Rng, replica: ReplicaId) -> (u64, Request) {
        self.count += 1;
        let (number, question) = (self.count, (replica, self.count));
        self.asked.insert(question);
        let service = ["one", "two"][random.usize(0..2)].to_owned();
        let request = match random.u8(0..5) {
            0 | 1 => return (number, Request::Spawn { commands: vec![command()], port: "port".into() }),
            2 => NameRequest::Publish { service, port: format!("{question:?}") },
            3 => NameRequest::Unpublish { service },
            _ => NameRequest::Lookup { service },
        };
        (number, Request::Name(request))
    }

    /// The coordinator takes a request in.
    pub fn taken(&mut self, question: Question, request: &Request) {
        let Request::Name(request) = request else {
            if *request == Request::Met {
                self.met.insert(question);
                self.fatal = self.fatal.or(self.failed.remove(&question));
            }
            return;
        };
        let right = match request {
            NameRequest::Publish { service, port } => match self.names.contains_key(service) {
                true => NameAnswer::Taken,
                false => {
                    self.names.insert(service.clone(), port.clone());
                    NameAnswer::Done
                }
            },
            NameRequest::Unpublish { service } => {
                self.names.remove(service).map_or(NameAnswer::Unknown, |_| NameAnswer::Done)
            }
            NameRequest::Lookup { service } => {
                self.names.get(service).cloned().map_or(NameAnswer::Unknown, NameAnswer::Port)
            }
        };
        self.right.insert(question, right);
    }

    /// A process is told something. Returns what is wrong with it.
    pub fn told(&mut self, question: Question, answer: &Answer) -> Option<String> {
        let right = self.right.remove(&question);
        match answer {
            // The end of the job has overtaken the message that it was met.
            Answer::NotSpawned(_) if self.came.contains(&question) => None,
            _ if !self.asked.remove(&question) => Some(format!("{question:?} is told of jobs, and has not asked")),
            Answer::Name(name) => {
                (Some(name) != right.as_ref()).then(|| format!("{question:?} is told {name:?} and not {right:?}"))
            }
            _ => None,
        }
    }

    /// Carries out an order of the coordinator. Returns the news at once.
    pub fn obey(&mut self, order: JobOrder, question_of: u64, fails: bool) -> Option<JobNews> {
        match order {
            JobOrder::Start { job, .. } if fails => Some(JobNews::NotStarted { job, why: "no memory".into() }),
            JobOrder::Start { job, replica, .. } => {
                self.spawned.insert(job, (replica, question_of));
                self.running.insert(job);
                None
            }
            _ => None,
        }
    }

    /// Something happens to a spawned job: news for the coordinator, and the process that has met it.
    pub fn step(&mut self, random: &mut fastrand::Rng) -> (Option<JobNews>, Option<Question>) {
        let Some(job) = random.choice(self.running.clone()) else { return (None, None) };
        let question = self.spawned[&job];
        let name = || NameRequest::Publish { service: "one".into(), port: "far".into() };
        match random.u8(0..6) {
            0 => (Some(JobNews::Error { job, line: "it is wrong".into() }), None),
            1 => (Some(JobNews::Name { job, question: 1, request: name() }), None),
            2 if self.asked.remove(&question) => {
                self.came.insert(question);
                (None, Some(question))
            }
            2..4 => {
                self.running.remove(&job);
                (Some(JobNews::Ended { job, code: i32::from(random.bool()) * 3 }), None)
            }
            _ => (None, None),
        }
    }

    /// The coordinator takes in that a job has ended.
    pub fn ended(&mut self, job: JobNumber, code: i32) {
        let Some(question) = self.spawned.remove(&job).filter(|_| code != 0) else { return };
        match self.met.contains(&question) {
            true => self.fatal = Some(code),
            false => drop(self.failed.insert(question, code)),
        }
    }

    /// A spawned job publishes a name, of which the coordinator has heard.
    pub fn published_far(&mut self) {
        self.names.entry("one".into()).or_insert_with(|| "far".into());
    }

    /// Another life of the job begins: whoever asked is gone.
    pub fn begin_life(&mut self) {
        (self.count, self.asked, self.right) = Default::default();
        (self.came, self.met, self.failed, self.fatal) = Default::default();
        self.spawned.clear();
        self.running.clear();
    }

    /// Checks that a job ends when one that it has met has failed.
    pub fn check(&self, is_ending: bool) -> Option<String> {
        let code = self.fatal.filter(|_| !is_ending)?;
        Some(format!("a job that was met has failed with exit code {code}, and this one goes on"))
    }
}

impl Job {
    /// Takes note of what the coordinator is about to hear of other jobs.
    pub(super) fn record_jobs(&mut self, input: &Input) {
        match input {
            Input::OtherJob(JobNews::Name { .. }) => self.jobs.published_far(),
            Input::OtherJob(JobNews::Ended { job, code }) => self.jobs.ended(*job, *code),
            Input::Daemon {
                host,
                message: FromDaemon::Agent { replica, message: FromAgent::Dynamic(number, request) },
            } if self.coordinator.host(*replica) == Some(*host) && *request != Request::Checkpoint => {
                self.taken_number = *number;
                self.jobs.taken((*replica, *number), request);
            }
            _ => {}
        }
    }

    /// Checks that this job ends with one that it has met.
    pub(super) fn check_jobs(&mut self) {
        let wrong = self.jobs.check(self.coordinator.manager().course().phase() == "ending");
        self.record_wrong(wrong);
    }

    /// A process asks about other jobs, or something happens to a job that was spawned.
    pub(super) fn other_job(&mut self) {
        if self.scenario.random.bool() {
            let Some(replica) = self.any_live() else { return };
            let (number, request) = self.jobs.request(&mut self.scenario.random, replica);
            return self.agent(replica, FromAgent::Dynamic(number, request));
        }
        let (news, met) = self.jobs.step(&mut self.scenario.random);
        if let Some((replica, number)) = met {
            self.agent(replica, FromAgent::Dynamic(number, Request::Met));
        }
        news.into_iter().for_each(|news| self.later(Input::OtherJob(news)));
    }
}
