//! A question of an administrator to a pool.

use crate::wire::{FromPool, Question, ToPool};
use anyhow::{Context, Result, bail};
use control_network::door;
use control_network::link::{Link, Received};
use redrt_wire::secret::Secret;
use std::net::SocketAddr;
use std::time::Duration;

const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Asks one question.
///
/// # Errors
/// When the pool cannot be reached, does not answer, or refuses.
pub fn ask(address: SocketAddr, secret: &Secret, question: Question) -> Result<String> {
    let opened = door::dial(address, secret, ANSWER_TIME_MAX);
    let opened = opened.with_context(|| format!("Failed to reach the pool at {address}"))?;
    let mut link = Link::new(opened.stream, Some(opened.cipher));
    link.send(&ToPool::Ask { version: env!("CARGO_PKG_VERSION").into(), question })?;
    loop {
        match link.next_message::<FromPool>()? {
            Some(FromPool::Answer(Ok(answer))) => return Ok(answer),
            Some(FromPool::Answer(Err(why)) | FromPool::Refused(why)) => return Err(why.into()),
            Some(_) => bail!("the pool answered something else"),
            None => {}
        }
        match link.receive().context("The pool does not answer")? {
            Received::Bytes => {}
            Received::Nothing => bail!("the pool does not answer"),
            Received::End => bail!("the pool closed the connection without an answer"),
        }
    }
}
