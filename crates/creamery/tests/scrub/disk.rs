//! A disk in memory with the failures that a test sets, and with a record of its requests. A copy of it is cheap: copies share their pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use creamery::device::{BlockDevice, Completion, DeviceId, Reply, Request};
use creamery_base::{Error, ErrorKind, Result};
use creamery_testkit::Random;

/// Bytes of a page, and of an unreadable unit.
pub(crate) const SECTOR: u64 = 4096;

type Page = Arc<[u8]>;

/// A request to a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Read { offset: u64, len: u64 },
    Write { offset: u64, data: Vec<u8> },
    Flush,
}

/// The requests to all disks of a set, in order: the member, and the request.
#[derive(Default)]
pub(crate) struct Journal(Mutex<Vec<(usize, Asked)>>);

impl Journal {
    pub(crate) fn asked(&self) -> Vec<(usize, Asked)> {
        lock(&self.0).clone()
    }

    fn note(&self, member: usize, asked: Asked) {
        lock(&self.0).push((member, asked));
    }
}

/// The failures of a disk.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    /// Sectors that are unreadable until they are written.
    pub(crate) unreadable: BTreeSet<u64>,
    /// A read with this offset and length fails once.
    pub(crate) read_once: Option<(u64, u64)>,
    /// Writes that begin at this offset write this many bytes, and fail.
    pub(crate) write: Option<(u64, usize)>,
    /// Writes that begin at this offset write nothing, and report success.
    pub(crate) write_lost: Option<u64>,
    /// All flushes fail.
    pub(crate) flush: bool,
}

pub(crate) struct RottenDisk {
    id: DeviceId,
    member: usize,
    len: u64,
    /// The disk only takes requests of whole units of this size.
    unit: u64,
    state: Mutex<DiskState>,
    journal: Arc<Journal>,
}

#[derive(Clone, Default)]
struct DiskState {
    pages: BTreeMap<u64, Page>,
    faults: Faults,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("it is in memory")
}

fn failed(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Io, what.into())
}

impl RottenDisk {
    pub(crate) fn new(member: usize, len: u64) -> Self {
        let (id, journal) = (DeviceId::unique(), Arc::default());
        Self { id, member, len, unit: 512, state: Mutex::default(), journal }
    }

    /// Sets the sector size.
    pub(crate) fn with_unit(self, unit: u64) -> Self {
        Self { unit, ..self }
    }

    /// A separate disk with the same bytes, without failures.
    pub(crate) fn fork(&self, journal: &Arc<Journal>) -> Self {
        let state = DiskState { pages: lock(&self.state).pages.clone(), faults: Faults::default() };
        let (id, journal) = (DeviceId::unique(), Arc::clone(journal));
        Self { id, member: self.member, len: self.len, unit: self.unit, state: Mutex::new(state), journal }
    }

    pub(crate) fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut lock(&self.state).faults);
    }

    /// Whether a sector can be read.
    pub(crate) fn is_readable(&self, offset: u64) -> bool {
        !lock(&self.state).faults.unreadable.contains(&(offset / SECTOR * SECTOR))
    }

    /// The bytes of the disk, regardless of failures.
    pub(crate) fn peek(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; index(len)];
        lock(&self.state).read(offset, &mut bytes);
        bytes
    }

    /// Sets bytes, regardless of failures: unreadable sectors stay unreadable.
    pub(crate) fn poke(&self, offset: u64, bytes: &[u8]) {
        lock(&self.state).write(offset, bytes);
    }

    /// Changes some bytes of a sector, of each sector differently: two rotten sectors must not match by accident.
    pub(crate) fn rot(&self, offset: u64) {
        let mut bytes = self.peek(offset, SECTOR);
        let mut random = Random::new(offset ^ (self.member as u64) << 48);
        bytes.iter_mut().skip(64).step_by(7).for_each(|byte| *byte ^= 1 + random.below(255) as u8);
        self.poke(offset, &bytes);
    }

    /// All sectors that were written.
    pub(crate) fn pages(&self) -> BTreeMap<u64, Page> {
        lock(&self.state).pages.clone()
    }

    fn check(&self, offset: u64, len: u64) -> Result<()> {
        if !offset.is_multiple_of(self.unit) || !len.is_multiple_of(self.unit) {
            return Err(failed(format!("{len} bytes at {offset}: not in sectors of {}", self.unit)));
        }
        match offset.checked_add(len).is_some_and(|end| end <= self.len) {
            true => Ok(()),
            false => Err(failed(format!("{len} bytes at {offset}: beyond the end"))),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let len = out.len() as u64;
        self.journal.note(self.member, Asked::Read { offset, len });
        self.check(offset, len)?;
        let mut state = lock(&self.state);
        if state.faults.read_once == Some((offset, len)) {
            state.faults.read_once = None;
            return Err(failed("this read fails once"));
        }
        let first = offset / SECTOR * SECTOR;
        if let Some(bad) = state.faults.unreadable.range(first..offset + len).next() {
            return Err(failed(format!("the sector at {bad} cannot be read")));
        }
        state.read(offset, out);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.journal.note(self.member, Asked::Write { offset, data: data.to_vec() });
        self.check(offset, data.len() as u64)?;
        let mut state = lock(&self.state);
        if state.faults.write_lost == Some(offset) {
            return Ok(());
        }
        let fails = state.faults.write.filter(|(at, _)| *at == offset);
        let data = fails.map_or(data, |(_, written)| &data[..data.len().min(written)]);
        state.write(offset, data);
        let end = offset + data.len() as u64;
        state.faults.unreadable.retain(|sector| *sector < offset || sector + SECTOR > end);
        match fails {
            None => Ok(()),
            Some(_) => Err(failed("this write fails")),
        }
    }

    fn run(&self, request: Request) -> Result<Reply> {
        match request {
            Request::Read { offset, mut buffer } => {
                self.read(offset, &mut buffer)?;
                Ok(Reply::Read(buffer))
            }
            Request::Write { offset, data } => {
                let bytes = data.iter().collect::<Vec<_>>().concat();
                self.write(offset, &bytes).map(|()| Reply::Done)
            }
            Request::Flush => {
                self.journal.note(self.member, Asked::Flush);
                match lock(&self.state).faults.flush {
                    true => Err(failed("this flush fails")),
                    false => Ok(Reply::Done),
                }
            }
            Request::Discard { offset, len } => {
                self.check(offset, len)?;
                lock(&self.state).write(offset, &vec![0; index(len)]);
                Ok(Reply::Done)
            }
        }
    }
}

impl DiskState {
    fn read(&self, offset: u64, out: &mut [u8]) {
        out.fill(0);
        let end = offset + out.len() as u64;
        for (&at, page) in self.pages.range(offset / SECTOR * SECTOR..end) {
            let (from, to) = (at.max(offset), (at + SECTOR).min(end));
            out[index(from - offset)..index(to - offset)]
                .copy_from_slice(&page[index(from - at)..index(to - at)]);
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut from = offset;
        while from < end {
            let at = from / SECTOR * SECTOR;
            let to = (at + SECTOR).min(end);
            let mut page = [0; SECTOR as usize];
            self.read(at, &mut page);
            page[index(from - at)..index(to - at)]
                .copy_from_slice(&data[index(from - offset)..index(to - offset)]);
            match page.iter().all(|byte| *byte == 0) {
                true => self.pages.remove(&at),
                false => self.pages.insert(at, Arc::from(&page[..])),
            };
            from = to;
        }
    }
}

impl BlockDevice for RottenDisk {
    fn submit(&self, request: Request, done: Completion) {
        done(self.run(request));
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn id(&self) -> DeviceId {
        self.id
    }

    fn describe(&self) -> String {
        format!("disk {}", self.member + 1)
    }

    fn sector_size(&self) -> u64 {
        self.unit
    }
}

/// The disks of a filesystem: member by member.
#[derive(Clone)]
pub(crate) struct Set {
    pub(crate) disks: Vec<Arc<RottenDisk>>,
    pub(crate) journal: Arc<Journal>,
}

impl Set {
    /// Makes disks of this length.
    pub(crate) fn new(members: usize, len: u64) -> Self {
        let journal = Arc::<Journal>::default();
        let disk =
            |member| Arc::new(RottenDisk { journal: Arc::clone(&journal), ..RottenDisk::new(member, len) });
        Self { disks: (0..members).map(disk).collect(), journal: Arc::clone(&journal) }
    }

    /// A separate set with the same bytes, without failures.
    pub(crate) fn fork(&self) -> Self {
        let journal = Arc::default();
        let disks = self.disks.iter().map(|disk| Arc::new(disk.fork(&journal))).collect();
        Self { disks, journal }
    }

    pub(crate) fn devices(&self) -> Vec<Arc<dyn BlockDevice>> {
        self.disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn BlockDevice>).collect()
    }

    /// All writes, in order.
    pub(crate) fn writes(&self) -> Vec<(usize, u64, Vec<u8>)> {
        let writes = self.journal.asked().into_iter().filter_map(|(member, asked)| match asked {
            Asked::Write { offset, data } => Some((member, offset, data)),
            _ => None,
        });
        writes.collect()
    }

    /// All reads: member, offset, and length, each once.
    pub(crate) fn reads(&self) -> BTreeSet<(usize, u64, u64)> {
        let reads = self.journal.asked().into_iter().filter_map(|(member, asked)| match asked {
            Asked::Read { offset, len } => Some((member, offset, len)),
            _ => None,
        });
        reads.collect()
    }

    pub(crate) fn pages(&self) -> Vec<BTreeMap<u64, Page>> {
        self.disks.iter().map(|disk| disk.pages()).collect()
    }
}
