//! Expectations on a filesystem, one a line; the engine checks them, or the host on a mount of the kernel.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use creamery_base::{ErrorKind, Wait};
use creamery_fs::{FileType, Filesystem};
use creamery_sim::{Entry, Snapshot, hash_of, host_snapshot, snapshot};
use rustix::fs::SeekFrom;

use super::script::{lines, resolve, runs, size, value};

/// The name of the file that the later work makes.
pub(crate) const LATER: &str = "later";

/// Seconds and nanoseconds of the last modification and the last change.
type Times = [(i64, i64); 2];

pub(crate) trait Look {
    fn snapshot(&self) -> Result<Snapshot>;
    /// Bytes that a file occupies, and the ranges of its data.
    fn space(&self, path: &str) -> Result<(u64, Vec<Range<u64>>)>;
    fn times(&self, path: &str) -> Result<Times>;
}

impl Look for Filesystem {
    fn snapshot(&self) -> Result<Snapshot> {
        snapshot(self)
    }

    fn space(&self, path: &str) -> Result<(u64, Vec<Range<u64>>)> {
        let file = self.open_file(resolve(self, path)?)?;
        let (mut data, mut at) = (Vec::new(), 0);
        loop {
            match file.seek_data(at) {
                Ok(start) => {
                    at = file.seek_hole(start)?;
                    data.push(start..at);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok((file.stat(Wait::Yes)?.allocated, data))
    }

    fn times(&self, path: &str) -> Result<Times> {
        let times = self.stat(resolve(self, path)?, Wait::Yes)?.times;
        Ok([times.modification, times.change].map(|time| (time.sec, i64::from(time.nsec))))
    }
}

impl Look for &Path {
    fn snapshot(&self) -> Result<Snapshot> {
        host_snapshot(self)
    }

    fn space(&self, path: &str) -> Result<(u64, Vec<Range<u64>>)> {
        let file = std::fs::File::open(self.join(path))?;
        let (mut data, mut at) = (Vec::new(), 0);
        while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
            at = rustix::fs::seek(&file, SeekFrom::Hole(start))?;
            data.push(start..at);
        }
        Ok((file.metadata()?.blocks() * 512, data))
    }

    fn times(&self, path: &str) -> Result<Times> {
        let stat = std::fs::symlink_metadata(self.join(path))?;
        Ok([(stat.mtime(), stat.mtime_nsec()), (stat.ctime(), stat.ctime_nsec())])
    }
}

/// Lines of expectations. Lines with `ever` hold after a power cut at any time, the others after the last step.
pub(crate) struct Wants {
    lines: Vec<String>,
    /// The times after the last step.
    times: BTreeMap<String, Times>,
}

impl Wants {
    /// Parses `text`. The expectations must hold without a power cut, too.
    pub(crate) fn new(text: &str, live: &dyn Look) -> Result<Self> {
        let mut wants = Self { lines: lines(text)?, times: BTreeMap::new() };
        for path in wants.lines.iter().filter_map(|line| line.strip_suffix(" times")) {
            wants.times.insert(path.to_owned(), live.times(path)?);
        }
        wants.expect(live, true).context("where no power failed")?;
        Ok(wants)
    }

    pub(crate) fn expect(&self, look: &dyn Look, is_done: bool) -> Result<()> {
        let seen = Seen { look, snapshot: look.snapshot()?, times: &self.times };
        for line in &self.lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["ever", ..] => seen.ever(&words[1..]).with_context(|| line.clone())?,
                _ if is_done => seen.expect(&words).with_context(|| line.clone())?,
                _ => {}
            }
        }
        Ok(())
    }
}

struct Seen<'a> {
    look: &'a dyn Look,
    snapshot: Snapshot,
    times: &'a BTreeMap<String, Times>,
}

fn key(path: &str) -> &[u8] {
    path.trim_start_matches('/').as_bytes()
}

fn expect_data(entry: &Entry, data: &[u8]) -> Result<()> {
    ensure!(entry.size == data.len() as u64, "it has {} bytes, not {}", entry.size, data.len());
    ensure!(entry.content == hash_of(&[data]), "it has other data");
    Ok(())
}

impl Seen<'_> {
    fn entry(&self, path: &str) -> Result<&Entry> {
        self.snapshot.entries.get(key(path)).context("it is not there")
    }

    /// Checks a file that may exist: its content is a prefix of these data.
    fn ever(&self, words: &[&str]) -> Result<()> {
        let [path, "begins", ref of @ ..] = *words else { bail!("no want of the language") };
        let (Ok(entry), mut data) = (self.entry(path), runs(of)?) else { return Ok(()) };
        data.truncate(usize::try_from(entry.size)?);
        expect_data(entry, &data)
    }

    fn expect(&self, words: &[&str]) -> Result<()> {
        if let ["either", one, other, ref rest @ ..] = *words {
            let there: Vec<&str> = [one, other].into_iter().filter(|path| self.entry(path).is_ok()).collect();
            ensure!(there.len() == 1, "there are {there:?}");
            return self.of_entry(self.entry(there[0])?, there[0], rest);
        }
        match *words {
            [path, "gone"] => ensure!(self.entry(path).is_err(), "it is there"),
            [dir, "names", ref names @ ..] => self.names(dir, names)?,
            [path, "is", other] => ensure!(self.entry(path)?.first == self.entry(other)?.first, "it is not"),
            [path, "times"] => {
                let (found, wanted) = (self.look.times(path)?, self.times[path]);
                ensure!(found == wanted, "they are {found:?}, not {wanted:?}");
            }
            [path, "newer", than] => {
                let (found, older) = (self.look.times(path)?, self.look.times(than)?);
                ensure!(found[0] > older[0] && found[1] > older[1], "{found:?} is not behind {older:?}");
            }
            [path, "takes", bytes] => {
                let (taken, wanted) = (self.look.space(path)?.0, size(bytes)?);
                ensure!(taken == wanted, "{taken} bytes are taken, not {wanted}");
            }
            [path, "maps", ref ranges @ ..] => self.maps(path, ranges)?,
            [path, ref rest @ ..] => self.of_entry(self.entry(path)?, path, rest)?,
            [] => bail!("no want of the language"),
        }
        Ok(())
    }

    fn of_entry(&self, entry: &Entry, path: &str, words: &[&str]) -> Result<()> {
        match *words {
            ["data", ref of @ ..] => expect_data(entry, &runs(of)?)?,
            ["links", count] => ensure!(entry.nlink == count.parse::<u32>()?, "it has {}", entry.nlink),
            ["mode", mode] => {
                ensure!(entry.mode == u32::from_str_radix(mode, 8)?, "it has {:o}", entry.mode);
            }
            ["target", target] => {
                ensure!(entry.kind == FileType::Symlink, "it is a {:?}", entry.kind);
                expect_data(entry, target.as_bytes())?;
            }
            ["fifo"] => ensure!(entry.kind == FileType::Fifo, "it is a {:?}", entry.kind),
            ["chardev"] => ensure!(entry.kind == FileType::CharDevice, "it is a {:?}", entry.kind),
            ["xattr", name, text] => {
                let found = entry.xattrs.get(name.as_bytes()).context("it has none of that name")?;
                ensure!(*found == value(text)?, "it has another value");
            }
            ["xattrs", ref names @ ..] => {
                let found: Vec<_> =
                    entry.xattrs.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
                ensure!(found == names, "{path} has {found:?}");
            }
            _ => bail!("no want of the language"),
        }
        Ok(())
    }

    fn names(&self, dir: &str, wanted: &[&str]) -> Result<()> {
        ensure!(self.entry(dir)?.kind == FileType::Directory, "it is no directory");
        let prefix = if key(dir).is_empty() { Vec::new() } else { [key(dir), b"/"].concat() };
        let below = self.snapshot.entries.keys().filter_map(|path| path.strip_prefix(&prefix[..]));
        let found: Vec<String> = below
            .filter(|name| !name.is_empty() && !name.contains(&b'/') && *name != LATER.as_bytes())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        ensure!(found == wanted, "they are {found:?}");
        Ok(())
    }

    fn maps(&self, path: &str, ranges: &[&str]) -> Result<()> {
        let (_, found) = self.look.space(path)?;
        let range = |text: &&str| -> Result<Range<u64>> {
            let (start, end) = text.split_once("..").context("a range")?;
            Ok(size(start)?..size(end)?)
        };
        let wanted = ranges.iter().map(range).collect::<Result<Vec<_>>>()?;
        ensure!(found == wanted, "it has data in {found:?}");
        Ok(())
    }
}
