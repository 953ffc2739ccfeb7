//! Direct requests through the library: each thread keeps a queue of requests in flight, and begins another one when one is answered.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use creamery::device::AlignedBuffer;
use creamery::device::direct::{DirectAt, DirectDone, DirectRequest};
use creamery::extents::Fallocate;
use creamery::{File, OpenOptions};
use creamery_testkit::Random;
use serde_json::Value;

use super::mix::{Drawn, Mix, SIZE_MAX};
use super::{DirectShape, Moved, Overlap, Prepared, Queue, measured};
use crate::side::{Library, OpenSetting, Side};

const FILE: &str = "/direct";

/// Runs the requests on a file in an image, and measures. The result includes the library's counters.
pub(crate) fn on_image(image: &Path, setting: OpenSetting, shape: &DirectShape) -> Result<Value> {
    shape.check()?;
    let library = Library::open(image, setting)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(shape.prepared != Prepared::There);
    let file = options.open(library.filesystem(), FILE)?;
    match shape.prepared {
        Prepared::There => {}
        Prepared::Allocated => file.fallocate(Fallocate::Allocate { keep_size: false }, 0, shape.bytes)?,
        Prepared::Written => fill(&file, shape.bytes)?,
    }
    let taken = RangesInFlight::default();
    let until = Instant::now() + shape.time;
    let work = |thread| Requests::new(&file, shape, thread, &taken).run(until);
    let mut said = measured(shape.threads, &work)?;
    said["statistics"] = serde_json::to_value(library.statistics())?;
    drop(file);
    Box::new(library).close()?;
    Ok(said)
}

/// Fills a file as programs do that write to it later: through memory, so its extents are large.
fn fill(file: &File, bytes: u64) -> Result<()> {
    let data = Random::new(1).bytes(SIZE_MAX);
    file.fallocate(Fallocate::Allocate { keep_size: false }, 0, bytes)?;
    for at in (0..bytes).step_by(SIZE_MAX) {
        let len = usize::try_from(bytes - at).map_or(SIZE_MAX, |left| left.min(SIZE_MAX));
        file.write_all_at(&data[..len], at)?;
    }
    Ok(file.sync_all()?)
}

/// Ranges of all requests in flight: the begin and the end of each.
#[derive(Default)]
struct RangesInFlight(Mutex<BTreeMap<u64, u64>>);

impl RangesInFlight {
    /// Takes the range of a request; returns false if another request has some of it.
    fn take(&self, drawn: Drawn) -> bool {
        let mut ranges = self.0.lock().expect("nobody panicked");
        let (start, end) = (drawn.offset, drawn.offset + drawn.len as u64);
        let is_free = ranges.range(..end).next_back().is_none_or(|(_, last)| *last <= start);
        if is_free {
            ranges.insert(start, end);
        }
        is_free
    }

    fn give_back(&self, drawn: Drawn) {
        self.0.lock().expect("nobody panicked").remove(&drawn.offset);
    }
}

type Answer = (Drawn, DirectDone);

/// The requests of one thread.
struct Requests<'r> {
    file: &'r File,
    shape: &'r DirectShape,
    mix: Mix,
    taken: &'r RangesInFlight,
    /// Unused buffers, by length.
    spare: BTreeMap<usize, Vec<AlignedBuffer>>,
    content: Vec<u8>,
}

impl<'r> Requests<'r> {
    fn new(file: &'r File, shape: &'r DirectShape, thread: usize, taken: &'r RangesInFlight) -> Self {
        let (seed, spare) = (thread as u64, BTreeMap::new());
        let content = Random::new(seed).bytes(SIZE_MAX);
        Self { file, shape, mix: Mix::new(seed, shape.bytes), taken, spare, content }
    }

    /// Keeps `depth` requests in flight until the time ends, and waits for the last ones.
    fn run(mut self, until: Instant) -> Result<Moved> {
        let (send, answers) = channel();
        let (mut in_flight, mut moved) = (0, Moved::default());
        loop {
            while in_flight < self.shape.depth && Instant::now() < until {
                self.begin(&send);
                in_flight += 1;
            }
            if in_flight == 0 {
                return Ok(moved);
            }
            let first = answers.recv().context("a request without an answer")?;
            for answer in std::iter::once(first).chain(answers.try_iter()) {
                moved.add(self.end(answer)?);
                in_flight -= 1;
            }
        }
    }

    fn begin(&mut self, send: &Sender<Answer>) {
        let drawn = self.draw();
        let spare = self.spare.get_mut(&drawn.len).and_then(Vec::pop);
        let buffer = spare.unwrap_or_else(|| AlignedBuffer::from_slice(&self.content[..drawn.len]));
        let request = match drawn.is_write {
            true => DirectRequest::Write { at: DirectAt::Offset(drawn.offset), data: buffer },
            false => DirectRequest::Read { offset: drawn.offset, buffer },
        };
        let send = send.clone();
        let completion = move |done| drop(send.send((drawn, done)));
        match self.shape.queue {
            Queue::Submit => self.file.submit(request, completion),
            Queue::Try => {
                if let Err(refused) = self.file.try_submit(request, completion) {
                    self.file.submit(refused.request, refused.done);
                }
            }
        }
    }

    fn draw(&mut self) -> Drawn {
        loop {
            let drawn = self.mix.draw();
            if self.shape.overlap == Overlap::Allowed || self.taken.take(drawn) {
                return drawn;
            }
        }
    }

    fn end(&mut self, (drawn, done): Answer) -> Result<Drawn> {
        if self.shape.overlap == Overlap::Never {
            self.taken.give_back(drawn);
        }
        let part = done.outcome.with_context(|| format!("{drawn:?}"))?;
        ensure!(part.len == drawn.len, "{drawn:?}: {} bytes", part.len);
        self.spare.entry(drawn.len).or_default().push(done.buffer);
        Ok(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::{Drawn, RangesInFlight};

    #[test]
    fn a_range_is_taken_where_nobody_has_any_of_it() {
        let taken = RangesInFlight::default();
        let range = |offset, len| Drawn { is_write: true, offset, len };
        assert!(taken.take(range(8192, 8192)));
        for (offset, len, is_free) in
            [(0, 8193, false), (16383, 1, false), (8192, 1, false), (0, 65536, false), (0, 8192, true)]
        {
            assert_eq!(taken.take(range(offset, len)), is_free, "{offset}+{len}");
        }
        assert!(taken.take(range(16384, 4096)));
        taken.give_back(range(8192, 8192));
        assert!(taken.take(range(12288, 4096)));
        assert!(!taken.take(range(8192, 4097)));
    }
}
