//! Parent of a process that continues from an image in a file.

use super::receive::given;
use super::{HelperConnection, Reply, hold};
use anyhow::{Context, Result};
use checkpoint_store::names;
use cloner::destination::{Receiver, receive as receive_image, standard};
use cloner::image::digests::Below;
use cloner::image::frame::FrameContent;
use cloner::image::state::Prologue;
use cloner::image::stream::FrameReader;
use cloner::launch::{self, Inside};
use redrt_wire::checkpoint::Generation;
use redrt_wire::secret::Secret;
use std::convert::Infallible;
use std::io::{self, Read};
use std::path::Path;

/// Loads an image, and ends as its process ends. With `locks` the process gets its file locks back before it runs.
pub fn load(path: &Path, key: Option<&Secret>, locks: bool, daemon: &mut HelperConnection) -> Result<Infallible> {
    let name = path.display();
    let read = prologue(&mut FrameReader::new(checkpoint_store::reader(path, key)?));
    let prologue = read.with_context(|| format!("{name} is not an image of a process"))?;
    let input = checkpoint_store::reader(path, key)?;
    let below = images_below(path, prologue.below, key)?;
    let running = launch::start(Some(prologue.pid), move |inside: Inside| {
        let given = match (standard(), given()) {
            (Ok(standard), Ok(given)) => (standard, given),
            (Err(error), _) | (_, Err(error)) => return error,
        };
        receive_image(Receiver {
            inputs: vec![input],
            below,
            answers: None,
            complaints: inside.complaints,
            listener: inside.listener,
            standard: given.0,
            given: given.1,
            succeeds: true,
            locks,
            drop_capabilities: inside.drop_capabilities,
        })
    });
    let running = hold::unless_killed(running).with_context(|| format!("{name} does not become a process"))?;
    if let Err(error) = running.begin() {
        running.kill();
        return Err(error).with_context(|| format!("the process in {name} does not go on"));
    }
    daemon.say(&Reply::Running { pid: running.pid as i32 })?;
    hold::stay(running)
}

/// The images that this one is built on, the lowest first.
fn images_below(path: &Path, mut next: Option<Below>, key: Option<&Secret>) -> Result<Vec<Box<dyn Read + Send>>> {
    let (mut inputs, mut above) = (Vec::new(), u64::MAX);
    while let Some(Below { number, .. }) = next {
        anyhow::ensure!(number < above, "{} is built on a newer image", path.display());
        above = number;
        let lower = names::of_checkpoint(path, Generation(number));
        let unread = || format!("{} is built on {}, which cannot be read", path.display(), lower.display());
        let opened = checkpoint_store::reader(&lower, key).with_context(unread)?;
        next = prologue(&mut FrameReader::new(opened)).with_context(unread)?.below;
        inputs.insert(0, checkpoint_store::reader(&lower, key)?);
    }
    Ok(inputs)
}

fn prologue(reader: &mut FrameReader<impl Read>) -> io::Result<Prologue> {
    let header = reader.expect(FrameContent::Prologue)?;
    reader.record(&header)
}
