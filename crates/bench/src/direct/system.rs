//! Direct requests through the system: a thread for each request in flight.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use creamery::device::AlignedBuffer;
use creamery_testkit::Random;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use serde_json::Value;

use super::mix::{Mix, SIZE_MAX};
use super::{DirectShape, Moved, Overlap, Prepared, Queue, measured};

/// Runs the requests on a file of the host, or on a device, and measures.
pub(crate) fn on_file(path: &Path, shape: &DirectShape) -> Result<Value> {
    shape.check()?;
    ensure!(shape.queue == Queue::Submit && shape.overlap == Overlap::Allowed, "that is of the library");
    let (file, is_direct) =
        open(path, shape.prepared).with_context(|| format!("opening {}", path.display()))?;
    match shape.prepared {
        Prepared::There => {}
        Prepared::Allocated => fallocate(&file, FallocateFlags::empty(), 0, shape.bytes)?,
        Prepared::Written => fill(&file, shape.bytes)?,
    }
    let until = Instant::now() + shape.time;
    let mut said = measured(shape.threads * shape.depth, &|thread| one(&file, shape.bytes, thread, until))?;
    said["o_direct"] = is_direct.into();
    Ok(said)
}

/// Opens with O_DIRECT, or without it if the file does not accept it.
fn open(path: &Path, prepared: Prepared) -> Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(prepared != Prepared::There);
    let direct = i32::try_from(OFlags::DIRECT.bits()).context("flags of open are an int")?;
    // If O_DIRECT is refused, the file may have been created nevertheless.
    match options.clone().custom_flags(direct).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            Ok((options.create_new(false).open(path)?, false))
        }
        Err(error) => Err(error.into()),
    }
}

fn fill(file: &File, bytes: u64) -> Result<()> {
    let data = AlignedBuffer::from_slice(&Random::new(1).bytes(SIZE_MAX));
    for at in (0..bytes).step_by(SIZE_MAX) {
        let len = usize::try_from(bytes - at).map_or(SIZE_MAX, |left| left.min(SIZE_MAX));
        file.write_all_at(&data[..len], at)?;
    }
    Ok(file.sync_all()?)
}

/// One thread's requests.
fn one(file: &File, bytes: u64, thread: usize, until: Instant) -> Result<Moved> {
    let mut buffer = AlignedBuffer::from_slice(&Random::new(thread as u64).bytes(SIZE_MAX));
    let (mut mix, mut moved) = (Mix::new(thread as u64, bytes), Moved::default());
    while Instant::now() < until {
        let drawn = mix.draw();
        let part = &mut buffer[..drawn.len];
        if drawn.is_write {
            file.write_all_at(part, drawn.offset)?;
        } else {
            file.read_exact_at(part, drawn.offset)?;
        }
        moved.add(drawn);
    }
    Ok(moved)
}
