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
use std::convert::Infallible;
use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::Path;

const BUFFER_BYTES: usize = 1 << 18;

/// Loads an image, and ends as its process ends.
pub fn load(path: &Path, daemon: &mut Daemon) -> Result<Infallible> {
    let name = path.display();
    let mut file = File::open(path).with_context(|| format!("Failed to open {name}"))?;
    let mut reader = FrameReader::new(BufReader::new(&file));
    let read = reader.expect(Kind::Prologue).and_then(|header| reader.record::<Prologue>(&header));
    let prologue = read.with_context(|| format!("{name} is not an image of a process"))?;
    file.rewind().with_context(|| format!("Failed to read {name}"))?;
    let running = launch::start(Some(prologue.pid), move |inside: Inside| {
        let given = match (standard(), given()) {
            (Ok(standard), Ok(given)) => (standard, given),
            (Err(error), _) | (_, Err(error)) => return error,
        };
        receive_image(Receiver {
            inputs: vec![Box::new(BufReader::with_capacity(BUFFER_BYTES, file))],
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
