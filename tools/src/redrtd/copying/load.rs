//! Becomes the parent of a process that goes on from its image in a file.

use super::receive::given;
use super::{Daemon, Reply, hold};
use crate::redclone::standard;
use anyhow::{Context, Result};
use cloner::destination::{Receiver, receive as receive_image};
use cloner::image::frame::Kind;
use cloner::image::state::Prologue;
use cloner::image::stream::FrameReader;
use cloner::launch::{self, Inside};
use redrt_wire::secret::Secret;
use std::convert::Infallible;
use std::path::Path;

/// Loads an image, and ends as its process ends.
pub fn load(path: &Path, key: Option<&Secret>, daemon: &mut Daemon) -> Result<Infallible> {
    let name = path.display();
    let mut reader = FrameReader::new(line_store::reader(path, key)?);
    let read = reader.expect(Kind::Prologue).and_then(|header| reader.record::<Prologue>(&header));
    let prologue = read.with_context(|| format!("{name} is not an image of a process"))?;
    let input = line_store::reader(path, key)?;
    let running = launch::start(Some(prologue.pid), move |inside: Inside| {
        let given = match (standard(), given()) {
            (Ok(standard), Ok(given)) => (standard, given),
            (Err(error), _) | (_, Err(error)) => return error,
        };
        receive_image(Receiver {
            inputs: vec![input],
            answers: None,
            complaints: inside.complaints,
            listener: inside.listener,
            standard: given.0,
            given: given.1,
            succeeds: true,
            drop_capabilities: inside.drop_capabilities,
        })
    });
    let running = running.with_context(|| format!("{name} does not become a process"))?;
    if let Err(error) = running.begin() {
        running.kill();
        return Err(error).with_context(|| format!("the process in {name} does not go on"));
    }
    daemon.say(&Reply::Running { pid: running.pid as i32 })?;
    hold::stay(running)
}
