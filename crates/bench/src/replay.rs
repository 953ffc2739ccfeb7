//! Several clients replay a load file at once, repeatedly until the time is over: measures the amount of data, and the times of each kind
//! of request, as dbench does.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use creamery_testkit::CpuMeter;
use serde_json::{Value, json};

use crate::load::{Recorded, Request, parse};
use crate::side::{Content, How, Side};
use crate::times::in_threads;

/// The directory of the client in load files.
const CLIENT: &str = "clients/client1";
/// One part in this many of the time is a warm-up, and is not counted.
const WARM_PART: u32 = 5;

/// The times of one kind of request.
#[derive(Clone, Copy, Default)]
struct Latency {
    count: u64,
    sum: Duration,
    most: Duration,
}

/// The measurements of one client.
#[derive(Default)]
struct ClientTimes {
    bytes: u64,
    latencies: BTreeMap<&'static str, Latency>,
}

/// A client: its directory, and its open files there.
struct Client<'s> {
    side: &'s dyn Side,
    dir: String,
    open: HashMap<u32, (String, Option<Box<dyn Content>>)>,
    piece: Vec<u8>,
}

/// Replays `load` with `threads` clients for `time` after the warm-up.
pub(crate) fn run(side: &dyn Side, load: &Path, threads: usize, time: Duration) -> Result<Value> {
    let text = std::fs::read_to_string(load).with_context(|| format!("reading {}", load.display()))?;
    let requests = parse(&text).with_context(|| load.display().to_string())?;
    ensure!(!requests.is_empty(), "{} has no request", load.display());
    // In the load file chance decides whose mkdir comes first, but not here.
    side.make_dir("clients")?;
    let (begun, all) = (Instant::now(), Mutex::new(ClientTimes::default()));
    let warm = begun + time / WARM_PART;
    let cpu = CpuMeter::start(side.servers()).ok();
    let operations = in_threads(threads, &|thread| {
        let mut client = Client::new(side, thread);
        let taken = client.work(&requests, warm, warm + time)?;
        let operations = taken.latencies.values().map(|latency| latency.count).sum::<u64>();
        all.lock().expect("nobody panicked").add(taken);
        Ok(usize::try_from(operations)?)
    })?;
    let cpu = cpu.map(|cpu| cpu.elapsed()).transpose()?;
    side.sync()?;
    let all = all.into_inner().expect("nobody panicked");
    Ok(json!({
        "operations": operations,
        "work_seconds": time.as_secs_f64(),
        "cpu_seconds": cpu.map(|cpu| cpu.as_secs_f64()),
        "bytes": all.bytes,
        "latencies": all.latencies.iter().map(|(name, latency)| (*name, latency.to_json())).collect::<BTreeMap<_, _>>(),
    }))
}

impl Latency {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.most = self.most.max(other.most);
    }

    fn to_json(self) -> Value {
        json!({
            "count": self.count,
            "average_seconds": self.sum.as_secs_f64() / self.count as f64,
            "worst_seconds": self.most.as_secs_f64(),
        })
    }
}

impl ClientTimes {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        for (name, latency) in other.latencies {
            self.latencies.entry(name).or_default().add(latency);
        }
    }
}

impl<'s> Client<'s> {
    fn new(side: &'s dyn Side, number: usize) -> Self {
        let dir = format!("clients/client{}", number + 1);
        Self { side, dir, open: HashMap::new(), piece: Vec::new() }
    }

    /// Replays the requests until `end`, and counts from `warm` on.
    fn work(&mut self, requests: &[Recorded], warm: Instant, end: Instant) -> Result<ClientTimes> {
        let mut taken = ClientTimes::default();
        let mut before = Instant::now();
        for number in (0..requests.len()).cycle() {
            let Recorded { request, goes_well } = &requests[number];
            let done = self.request(request);
            let now = Instant::now();
            match done {
                Ok(bytes) if now > warm && now <= end => {
                    taken.bytes += bytes;
                    let took = now - before;
                    let latency = Latency { count: 1, sum: took, most: took };
                    taken.latencies.entry(request.name()).or_default().add(latency);
                }
                Err(error) if *goes_well => {
                    return Err(error.context(format!("request {}: {request:?}", number + 1)));
                }
                done => {
                    ensure!(done.is_err() || *goes_well, "request {}: {request:?} went well", number + 1);
                }
            }
            if now > end {
                break;
            }
            before = now;
        }
        Ok(taken)
    }

    fn path(&self, path: &str) -> String {
        match path.strip_prefix(CLIENT) {
            Some(rest) => format!("{}{rest}", self.dir),
            None => path.to_owned(),
        }
    }

    fn file(&self, handle: u32) -> Result<&dyn Content> {
        let open = self.open.get(&handle).and_then(|(_, file)| file.as_deref());
        open.with_context(|| format!("{handle} is no open file"))
    }

    /// Runs a request; returns its bytes of data.
    fn request(&mut self, request: &Request) -> Result<u64> {
        let side = self.side;
        match request {
            Request::OpenDir { path, handle } => {
                let path = self.path(path);
                if side.stat(&path).is_err() {
                    side.make_dir(&path)?;
                }
                self.open.insert(*handle, (path, None));
            }
            Request::Open { path, create, truncate, handle } => {
                let path = self.path(path);
                let file = side.open(&path, How::Load { create: *create, truncate: *truncate })?;
                self.open.insert(*handle, (path, Some(file)));
            }
            Request::Close(handle) => drop(self.open.remove(handle).context("nothing is open")?),
            Request::Read { handle, offset, len } => {
                self.piece.resize(*len, 0);
                let file = self.open.get(handle).and_then(|(_, file)| file.as_deref());
                let read = file.context("no open file")?.read_at(&mut self.piece, *offset)?;
                return Ok(read as u64);
            }
            Request::Write { handle, offset, len } => {
                self.piece.resize(*len, 0);
                self.file(*handle)?.write_all_at(&self.piece, *offset)?;
                return Ok(*len as u64);
            }
            Request::Flush(handle) => self.file(*handle)?.sync()?,
            Request::Rename { from, to } => side.rename(&self.path(from), &self.path(to))?,
            Request::Unlink(path) => side.unlink(&self.path(path))?,
            Request::RemoveTree(path) => {
                self.open.clear();
                if side.stat(&self.path(path)).is_ok() {
                    side.remove_tree(&self.path(path))?;
                }
            }
            Request::MakeDir(path) => {
                if side.stat(&self.path(path)).is_err() {
                    side.make_dir(&self.path(path))?;
                }
            }
            Request::Stat(path) => drop(side.stat(&self.path(path))?),
            Request::StatOpen(handle) => match self.file(*handle) {
                Ok(file) => drop(file.len()?),
                Err(_) => drop(side.stat(&self.open.get(handle).context("nothing is open")?.0)?),
            },
            Request::Space => drop(side.free_bytes()?),
            Request::Touch(handle) => side.touch(&self.open.get(handle).context("nothing is open")?.0)?,
            Request::List(path) => drop(side.list(&self.path(path))?),
        }
        Ok(0)
    }
}
