//! Work on data: files written and read in pieces, each thread its own.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use creamery_testkit::Random;
use serde_json::Value;

use crate::content::{Contents, PIECE_MAX};
use crate::side::{Content, How, Side};
use crate::times::{Times, in_threads, spread};

/// The kinds of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ContentWorkload {
    /// Writes a new file.
    Write,
    /// Overwrites a file completely.
    Overwrite,
    /// Reads with nothing cached in the process, which has just opened the filesystem.
    Read,
    /// A second `Read` of the same files.
    ReadWarm,
    /// Reads like `Read`, and compares each byte.
    Verify,
}

/// The order in which the pieces of a file come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Sequential,
    Random,
}

/// The size of the workload, and its variants.
#[derive(Clone, Debug)]
pub(crate) struct DataShape {
    pub(crate) threads: usize,
    /// Length of each thread's file.
    pub(crate) bytes: u64,
    /// Bytes of one operation.
    pub(crate) piece: usize,
    pub(crate) order: Order,
    /// Maximum number of pieces of each file that are read or written, in order; 0: all.
    pub(crate) pieces: usize,
    /// The number of pieces after which the file is made durable; 0: only at the end.
    pub(crate) sync_every: usize,
    /// The generation of the content that is written or expected.
    pub(crate) generation: usize,
    /// Whether the content is text, which compresses.
    pub(crate) is_text: bool,
    /// Whether to expect zeros: the server keeps no data.
    pub(crate) zeros: bool,
    /// The directory of the files.
    pub(crate) below: String,
}

impl DataShape {
    pub(crate) const USUAL: Self = Self {
        threads: 1,
        bytes: 256 << 20,
        piece: 128 << 10,
        order: Order::Sequential,
        pieces: 0,
        sync_every: 0,
        generation: 0,
        is_text: false,
        zeros: false,
        below: String::new(),
    };

    /// The offset of each piece of `file`, in the order of work.
    fn offsets(&self, file: usize) -> Vec<u64> {
        let mut offsets: Vec<u64> =
            (0..self.bytes / self.piece as u64).map(|index| index * self.piece as u64).collect();
        if self.order == Order::Random {
            Random::new(file as u64 + 1).shuffle(&mut offsets);
        }
        if self.pieces > 0 {
            offsets.truncate(self.pieces);
        }
        offsets
    }
}

/// One thread's part.
struct ThreadShare {
    number: usize,
    file: Box<dyn Content>,
    offsets: Vec<u64>,
    /// The time of each group of pieces: writing them and making them durable.
    synced: Mutex<Vec<Duration>>,
}

impl ContentWorkload {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "write" => Self::Write,
            "overwrite" => Self::Overwrite,
            "read" => Self::Read,
            "read-warm" => Self::ReadWarm,
            "verify" => Self::Verify,
            _ => return None,
        })
    }

    const fn how(self) -> How {
        match self {
            Self::Write => How::New,
            Self::Overwrite => How::Write,
            Self::Read | Self::ReadWarm | Self::Verify => How::Read,
        }
    }

    /// Runs the workload and measures it: in total, and for each time that a file was made durable.
    pub(crate) fn run(self, side: &dyn Side, shape: &DataShape) -> Result<Value> {
        ensure!((1..=PIECE_MAX).contains(&shape.piece), "a piece has 1 to {PIECE_MAX} bytes");
        ensure!(shape.bytes.is_multiple_of(shape.piece as u64) && shape.bytes > 0, "a file has whole pieces");
        let contents = match shape.is_text {
            true => Contents::text(shape.generation),
            false => Contents::new(shape.generation, shape.zeros),
        };
        let parts: Vec<ThreadShare> = (0..shape.threads)
            .map(|number| {
                let path = Path::new(&shape.below).join(format!("data-{number}"));
                let path = path.to_str().context("the directory's name is no text")?;
                let (file, offsets) = (side.open(path, self.how())?, shape.offsets(number));
                Ok(ThreadShare { number, file, offsets, synced: Mutex::default() })
            })
            .collect::<Result<_>>()?;
        let work = |thread: usize| self.work(&parts[thread], shape, &contents);
        if self == Self::ReadWarm {
            in_threads(shape.threads, &work)?;
        }
        let mut said = Times::measure(side, shape.threads, &work)?.to_json();
        let synced: Vec<Duration> =
            parts.into_iter().flat_map(|part| part.synced.into_inner().expect("nobody panicked")).collect();
        if !synced.is_empty() {
            said["synced"] = spread(synced);
        }
        Ok(said)
    }

    /// One thread's part; returns the number of its pieces.
    fn work(self, part: &ThreadShare, shape: &DataShape, contents: &Contents) -> Result<usize> {
        let ThreadShare { number, file, offsets, synced } = part;
        let mut piece = vec![0; shape.piece];
        let (mut took, mut begun) = (Vec::new(), Instant::now());
        for (done, &offset) in (1..).zip(offsets) {
            match self {
                Self::Write | Self::Overwrite => {
                    file.write_all_at(contents.at(*number, offset, shape.piece), offset)?;
                    if shape.sync_every > 0 && done % shape.sync_every == 0 {
                        file.sync()?;
                        let now = Instant::now();
                        took.push(now - begun);
                        begun = now;
                    }
                }
                Self::Read | Self::ReadWarm => {
                    file.read_exact_at(&mut piece, offset)?;
                    contents.glance(*number, offset, &piece)?;
                }
                Self::Verify => {
                    file.read_exact_at(&mut piece, offset)?;
                    contents.compare(*number, offset, &piece)?;
                }
            }
        }
        *synced.lock().expect("nobody panicked") = took;
        Ok(offsets.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{DataShape, Order};

    #[test]
    fn each_piece_comes_once_in_either_order() {
        let shape = DataShape { bytes: 64 << 10, piece: 4096, ..DataShape::USUAL };
        let sequential = shape.offsets(0);
        assert_eq!(sequential.len(), 16);
        let mut random = DataShape { order: Order::Random, ..shape }.offsets(0);
        assert_ne!(random, sequential);
        random.sort_unstable();
        assert_eq!(random, sequential);
    }
}
