//! Data and holes: a file with 4 KiB of data and a hole of 4 KiB in turn. The workload asks in turn for the next data and the next hole,
//! from answer to answer to the file's end, as `cp` and `tar -S` do.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use creamery_testkit::CpuMeter;
use serde_json::{Value, json};

use crate::side::{Content, How, Side};
use crate::times::Times;

/// Bytes of a piece of data, and of the hole behind it.
const PIECE: usize = 4096;
const STEP: u64 = 2 * PIECE as u64;
const BYTE: u8 = 0xab;

/// The kinds of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SeekWorkload {
    /// Makes the file for a later workload.
    Sparse,
    /// Goes through the file, and a second time with the data read.
    Seek,
    /// Makes the file, and asks repeatedly for the first data and the first hole, with all the rest behind.
    SeekFirst,
}

/// The state of the file before the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileState {
    /// Written, and nothing synced since.
    Dirty,
    /// Written and synced.
    Flushed,
    /// Written before the filesystem was opened or mounted anew.
    Cold,
}

impl FileState {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "dirty" => Self::Dirty,
            "flushed" => Self::Flushed,
            "cold" => Self::Cold,
            _ => return None,
        })
    }

    /// The name of the file: a flushed file is cold for a later run.
    const fn file(self) -> &'static str {
        if matches!(self, Self::Dirty) { "sparse-dirty" } else { "sparse-flushed" }
    }
}

/// The size of the workload, and its variants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeekScale {
    /// Bytes of the file, a multiple of 8 KiB.
    pub(crate) bytes: u64,
    pub(crate) state: FileState,
    /// Whether to go through the file a second time and read its data.
    pub(crate) reading: bool,
    /// Whether to expect zeros when reading: the server keeps no data.
    pub(crate) zeros: bool,
    /// Calls that ask for the first data or hole.
    pub(crate) calls: usize,
}

/// The result of going through the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Found {
    calls: usize,
    extents: u64,
    data_bytes: u64,
}

impl SeekWorkload {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "sparse" => Self::Sparse,
            "seek" => Self::Seek,
            "seek-first" => Self::SeekFirst,
            _ => return None,
        })
    }

    /// Runs the workload and measures it.
    pub(crate) fn run(self, side: &dyn Side, scale: SeekScale) -> Result<Value> {
        ensure!(
            scale.bytes > 0 && scale.bytes.is_multiple_of(STEP),
            "the file has whole steps of {STEP} bytes"
        );
        let path = scale.state.file();
        if self == Self::Sparse || scale.state != FileState::Cold {
            make(&*side.open(path, How::New)?, scale.bytes).context("making the file")?;
        }
        if scale.state == FileState::Flushed {
            side.sync()?;
        }
        // If a file is open for writing, a mount asks the kernel for changes of mappings; copying programs open for reading only.
        let file = side.open(path, How::Read)?;
        let before = is_as_said(side, scale)?;
        let mut said = match self {
            Self::Sparse => Times::of(steps(scale.bytes)?, Duration::ZERO, Duration::ZERO, None).to_json(),
            Self::Seek => scan(side, &*file, scale)?,
            Self::SeekFirst => first(side, &*file, scale.calls)?,
        };
        said["delayed_bytes"] = json!(before);
        said["is_delayed"] = json!(file.is_delayed()?);
        if self != Self::Sparse {
            // Background writeback in between would mean that the measured state is not the reported one.
            is_as_said(side, scale).context("afterwards")?;
        }
        if self == Self::SeekFirst {
            // The file is removed first, so that nothing is written back.
            drop(file);
            side.unlink(path)?;
        }
        Ok(said)
    }
}

fn steps(bytes: u64) -> Result<usize> {
    Ok(usize::try_from(bytes / STEP)?)
}

fn make(file: &dyn Content, bytes: u64) -> Result<()> {
    let data = [BYTE; PIECE];
    (0..bytes / STEP).try_for_each(|step| file.write_all_at(&data, step * STEP))
}

/// Checks the delayed bytes, where they are reported: all data of a dirty file, else 0.
fn is_as_said(side: &dyn Side, scale: SeekScale) -> Result<Option<u64>> {
    let Some(statistics) = side.statistics() else { return Ok(None) };
    let delayed = statistics.writeback.delayed_bytes;
    let wanted = if scale.state == FileState::Dirty { scale.bytes / 2 } else { 0 };
    ensure!(
        delayed == wanted,
        "{delayed} bytes are delayed, and {wanted} should be: --delayed-mib tells how many may"
    );
    Ok(Some(delayed))
}

/// Goes from answer to answer; the last one is that there is no more data.
fn go_through(file: &dyn Content, mut at_data: impl FnMut(u64, u64) -> Result<()>) -> Result<Found> {
    let (mut found, mut at) = (Found::default(), 0);
    loop {
        found.calls += 1;
        let Some(data) = file.seek_data(at)? else { return Ok(found) };
        found.calls += 1;
        let hole = file.seek_hole(data)?.with_context(|| format!("no hole behind {data}"))?;
        ensure!(at <= data && data < hole, "data from {data} to {hole}, behind {at}");
        found.extents += 1;
        found.data_bytes += hole - data;
        at_data(data, hole)?;
        at = hole;
    }
}

/// Checks that all extents were seen.
fn is_whole(found: Found, bytes: u64) -> Result<()> {
    let extents = bytes / STEP;
    let wanted = Found { calls: steps(bytes)? * 2 + 1, extents, data_bytes: extents * PIECE as u64 };
    ensure!(found == wanted, "{found:?}, and it should be {wanted:?}");
    Ok(())
}

fn scan(side: &dyn Side, file: &dyn Content, scale: SeekScale) -> Result<Value> {
    let (found, took) = timed(side, || go_through(file, |_, _| Ok(())))?;
    is_whole(found, scale.bytes)?;
    let (work, cpu) = took;
    let mut said = Times::of(found.calls, work, Duration::ZERO, cpu).to_json();
    said["extents"] = json!(found.extents);
    said["data_bytes"] = json!(found.data_bytes);
    if scale.reading {
        let mut out = [0; PIECE];
        let wanted = [if scale.zeros { 0 } else { BYTE }; PIECE];
        let read = |data, hole| {
            ensure!(hole - data == PIECE as u64, "data from {data} to {hole}");
            file.read_exact_at(&mut out, data)?;
            ensure!(out == wanted, "at {data} is not what was written there");
            Ok(())
        };
        let (found, (work, cpu)) = timed(side, || go_through(file, read))?;
        is_whole(found, scale.bytes)?;
        said["reading"] = Times::of(found.calls, work, Duration::ZERO, cpu).to_json();
    }
    Ok(said)
}

/// Asks for the first data and the first hole, `calls` times.
fn first(side: &dyn Side, file: &dyn Content, calls: usize) -> Result<Value> {
    let (_, (work, cpu)) = timed(side, || {
        for call in 0..calls {
            let (found, wanted) = match call % 2 {
                0 => (file.seek_data(0)?, 0),
                _ => (file.seek_hole(0)?, PIECE as u64),
            };
            ensure!(found == Some(wanted), "the first lies at {found:?}");
        }
        Ok(())
    })?;
    Ok(Times::of(calls, work, Duration::ZERO, cpu).to_json())
}

/// The result of `work`, and its wall and CPU time.
fn timed<T>(side: &dyn Side, work: impl FnOnce() -> Result<T>) -> Result<(T, (Duration, Option<Duration>))> {
    let cpu = CpuMeter::start(side.servers()).ok();
    let start = Instant::now();
    let done = work()?;
    let took = start.elapsed();
    Ok((done, (took, cpu.map(|cpu| cpu.elapsed()).transpose()?)))
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::{Content, Found, PIECE, STEP, go_through, is_whole};

    /// A file whose every second piece is data, and which reports this many bytes.
    struct Pieces(u64);

    impl Content for Pieces {
        fn read_exact_at(&self, _: &mut [u8], _: u64) -> Result<()> {
            unreachable!("nobody reads")
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize> {
            unreachable!("nobody reads")
        }

        fn len(&self) -> Result<u64> {
            Ok(self.0)
        }

        fn write_all_at(&self, _: &[u8], _: u64) -> Result<()> {
            unreachable!("nobody writes")
        }

        fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
            Ok(Some(offset.next_multiple_of(STEP)).filter(|data| *data < self.0))
        }

        fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
            Ok(Some(offset - offset % STEP + PIECE as u64))
        }

        fn is_delayed(&self) -> Result<Option<bool>> {
            Ok(None)
        }

        fn sync(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_scan_that_ends_too_early_does_not_count() {
        let bytes = 5 * STEP;
        let mut begins = Vec::new();
        let found = go_through(&Pieces(bytes), |data, _| {
            begins.push(data);
            Ok(())
        })
        .unwrap();
        assert_eq!(begins, [0, 8192, 16384, 24576, 32768]);
        assert_eq!(found, Found { calls: 11, extents: 5, data_bytes: 20480 });
        assert!(is_whole(found, bytes).is_ok());
        for shorter in [0, bytes - STEP] {
            let found = go_through(&Pieces(shorter), |_, _| Ok(())).unwrap();
            assert!(is_whole(found, bytes).is_err(), "{found:?}");
        }
    }
}
