//! `creamery-bench WORKLOAD SIDE [OPTIONS]`: one workload on one side, its times as one line of JSON. `cargo xtask bench`
//! runs both sides in turn and compares.
//!
//! The side is `--image FILE`, a filesystem that the library opens, or `--dir DIR`, a mounted one. Both run the same operations on the same
//! names, with the same number of threads. Direct requests also go to a file of the host, `--file FILE`.

mod commits;
mod content;
mod data;
mod direct;
mod gate;
mod load;
mod names;
mod replay;
mod scrub;
mod seek;
mod side;
mod subvolumes;
mod times;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use creamery::compression::Compress;
use creamery_codec::ChecksumType;
use direct::Overlap;
use side::{Directory, Library, OpenSetting, Side};
use times::Times;

const USAGE: &str = "usage: creamery-bench WORKLOAD (--image FILE | --dir DIR [--server PID] [--sync-by PROGRAM]) [OPTIONS]
  create|lookup|lookup-warm|readdir|unlink|mixed   [--threads N] [--files N] [--rounds N]
  write|overwrite|read|read-warm|verify            [--threads N] [--bytes N] [--piece N] [--order sequential|random] [--pieces N] [--sync-every N] [--generation N] [--text on|off] [--zeros on|off] [--below DIR]
  gate                                             [--bytes N] [--piece N] [--generation N]
  sparse|seek|seek-first                           [--bytes N] [--state dirty|flushed|cold] [--reading on|off] [--zeros on|off] [--count N]
  commits                                          [--files N] [--count N]
  replay --load FILE                               [--threads N] [--seconds N]
  snapshots|clones|drop|fill|copy-within           [--files N] [--count N] [--measured N] [--bytes N] [--piece N]
  copy-in|walk|copy-out|remove                     [--files N] [--host DIR]
  scrub                                            [--latency-us N] [--read-ahead on|off]
  direct (also --file FILE)                        [--threads N] [--depth N] [--bytes N] [--seconds N] [--prepared there|allocated|written] [--queue submit|try] [--overlap on|off]
  sum                                              [--device FILE] [--checksum NAME] [--threads N]
  with --image also                                [--cache-mib N] [--dirty-mib N] [--delayed-mib N] [--early-unlock on|off] [--fingers on|off] [--read-ahead on|off] [--lock-times on|off] [--lock-contention on|off] [--tree-log on|off] [--nodatacow on|off] [--nocow-keeps-leaf on|off] [--direct-waits on|off] [--direct-ends-at-once on|off] [--seek-cursors on|off] [--compress METHOD] [--read-only on|off] [--degraded on|off] [--direct-io on|off]";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("creamery-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<serde_json::Value> {
    let (workload, words) = words.split_first().context(USAGE)?;
    let options = Options::parse(words)?;
    if let Some(said) = of_image(workload, &options).or_else(|| direct(workload, &options)) {
        return said;
    }
    let workload = Workload::parse(workload).context(USAGE)?;
    let side: Box<dyn Side> = match &options.target {
        Some(Target::Image(image)) => Box::new(Library::open(image, options.setting)?),
        Some(Target::Dir(dir)) => {
            Box::new(Directory::new(dir.clone(), options.servers.clone(), options.sync_by.clone()))
        }
        Some(Target::File(_)) | None => bail!(USAGE),
    };
    let mut said = workload.run(&*side, &options)?;
    said["statistics"] = serde_json::to_value(side.statistics())?;
    side.close()?;
    Ok(said)
}

/// Runs a workload on an image without opening it as a filesystem, if it is one of these.
fn of_image(workload: &str, options: &Options) -> Option<Result<serde_json::Value>> {
    let Some(Target::Image(image)) = &options.target else { return None };
    match workload {
        "scrub" => Some(scrub::scrub(
            image,
            scrub::ScrubSetting {
                latency: options.latency,
                without_read_ahead: options.setting.read_ahead == Some(false),
            },
        )),
        "sum" => {
            let files = std::iter::once(image).chain(&options.devices).cloned().collect::<Vec<_>>();
            Some(scrub::sum(&files, options.checksum, options.threads))
        }
        _ => None,
    }
}

/// Runs direct requests on one file, if that is the workload.
fn direct(workload: &str, options: &Options) -> Option<Result<serde_json::Value>> {
    if workload != "direct" {
        return None;
    }
    let Options { threads, time, .. } = *options;
    let shape = direct::DirectShape { threads, time, bytes: options.shape.bytes, ..options.direct };
    Some(match &options.target {
        Some(Target::Image(image)) => direct::on_image(image, options.setting, &shape),
        Some(Target::File(file)) => direct::on_file(file, &shape),
        Some(Target::Dir(_)) | None => Err(anyhow::anyhow!(USAGE)),
    })
}

/// All workloads.
enum Workload {
    Names(names::NamesWorkload),
    Data(data::ContentWorkload),
    Tree(tree::TreeWorkload),
    Subvolumes(subvolumes::SubvolumesWorkload),
    Seek(seek::SeekWorkload),
    Gate,
    Replay,
    Commits,
}

impl Workload {
    fn parse(word: &str) -> Option<Self> {
        let names = || names::NamesWorkload::parse(word).map(Self::Names);
        let data = || data::ContentWorkload::parse(word).map(Self::Data);
        let tree = || tree::TreeWorkload::parse(word).map(Self::Tree);
        let subvolumes = || subvolumes::SubvolumesWorkload::parse(word).map(Self::Subvolumes);
        let seek = || seek::SeekWorkload::parse(word).map(Self::Seek);
        let gate = || (word == "gate").then_some(Self::Gate);
        let replay = || (word == "replay").then_some(Self::Replay);
        let commits = || (word == "commits").then_some(Self::Commits);
        names()
            .or_else(data)
            .or_else(tree)
            .or_else(subvolumes)
            .or_else(seek)
            .or_else(gate)
            .or_else(replay)
            .or_else(commits)
    }

    /// Runs the workload; returns the output.
    fn run(&self, side: &dyn Side, options: &Options) -> Result<serde_json::Value> {
        let Options { threads, files, rounds, .. } = *options;
        let times: Result<Times> = match self {
            Self::Names(workload) => workload.run(side, names::NamesScale { threads, files, rounds }),
            Self::Data(workload) => {
                return workload.run(side, &data::DataShape { threads, ..options.shape.clone() });
            }
            Self::Tree(workload) => workload.run(side, &tree::Tree { host: options.host.clone(), files }),
            Self::Subvolumes(workload) => {
                let data::DataShape { bytes, piece, .. } = options.shape;
                let Options { count, measured, .. } = *options;
                return workload
                    .run(side, subvolumes::SubvolumesScale { files, count, measured, bytes, piece });
            }
            Self::Seek(workload) => {
                let data::DataShape { bytes, zeros, .. } = options.shape;
                let Options { state, reading, count: calls, .. } = *options;
                return workload.run(side, seek::SeekScale { bytes, state, reading, zeros, calls });
            }
            Self::Replay => {
                let load = options.load.as_deref().context("--load FILE is missing")?;
                return replay::run(side, load, threads, options.time);
            }
            Self::Commits => return commits::run(side, files, options.count),
            Self::Gate => {
                let (times, stranger) = gate::run(side, &options.shape)?;
                let mut said = times.to_json();
                said["gate"] = stranger;
                return Ok(said);
            }
        };
        Ok(times?.to_json())
    }
}

enum Target {
    Image(PathBuf),
    Dir(PathBuf),
    File(PathBuf),
}

/// The options behind the workload.
struct Options {
    target: Option<Target>,
    servers: Vec<u32>,
    sync_by: Option<PathBuf>,
    setting: OpenSetting,
    threads: usize,
    files: usize,
    rounds: usize,
    count: usize,
    measured: usize,
    state: seek::FileState,
    reading: bool,
    shape: data::DataShape,
    direct: direct::DirectShape,
    host: Option<PathBuf>,
    load: Option<PathBuf>,
    time: Duration,
    latency: Option<Duration>,
    devices: Vec<PathBuf>,
    checksum: ChecksumType,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self {
            target: None,
            servers: Vec::new(),
            sync_by: None,
            setting: OpenSetting::default(),
            threads: 1,
            files: 100_000,
            rounds: 1,
            count: 1,
            measured: 1,
            state: seek::FileState::Flushed,
            reading: true,
            shape: data::DataShape::USUAL,
            direct: direct::DirectShape::USUAL,
            host: None,
            load: None,
            time: Duration::from_secs(10),
            latency: None,
            devices: Vec::new(),
            checksum: ChecksumType::Crc32c,
        };
        for pair in words.chunks(2) {
            let [name, value] = pair else { bail!("{} wants a value\n{USAGE}", pair[0]) };
            options.take(name, value).with_context(|| format!("{name} {value}"))?;
        }
        Ok(options)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<()> {
        let number = || Ok::<_, anyhow::Error>(value.parse::<usize>()?);
        let Self { setting, shape, direct, .. } = self;
        match name {
            "--image" => self.target = Some(Target::Image(value.into())),
            "--dir" => self.target = Some(Target::Dir(value.into())),
            "--file" => self.target = Some(Target::File(value.into())),
            "--server" => self.servers.push(value.parse()?),
            "--sync-by" => self.sync_by = Some(value.into()),
            "--threads" => self.threads = number()?.max(1),
            "--files" => self.files = number()?,
            "--rounds" => self.rounds = number()?.max(1),
            "--count" => self.count = number()?.max(1),
            "--measured" => self.measured = number()?,
            "--state" => {
                self.state = seek::FileState::parse(value).context("neither dirty, flushed nor cold")?
            }
            "--reading" => self.reading = switch(value)?,
            "--host" => self.host = Some(value.into()),
            "--load" => self.load = Some(value.into()),
            "--seconds" => self.time = Duration::from_secs(value.parse()?),
            "--latency-us" => self.latency = Some(Duration::from_micros(value.parse()?)),
            "--device" => self.devices.push(value.into()),
            "--checksum" => self.checksum = value.parse()?,
            "--bytes" => shape.bytes = value.parse()?,
            "--piece" => shape.piece = number()?,
            "--order" => shape.order = order(value)?,
            "--pieces" => shape.pieces = number()?,
            "--sync-every" => shape.sync_every = number()?,
            "--generation" => shape.generation = number()?,
            "--depth" => direct.depth = number()?,
            "--prepared" => direct.prepared = direct::Prepared::parse(value)?,
            "--queue" => direct.queue = direct::Queue::parse(value)?,
            "--overlap" => direct.overlap = if switch(value)? { Overlap::Allowed } else { Overlap::Never },
            "--text" => shape.is_text = switch(value)?,
            "--zeros" => shape.zeros = switch(value)?,
            "--below" => shape.below = value.to_owned(),
            "--cache-mib" => setting.cache_mib = Some(number()?),
            "--dirty-mib" => setting.dirty_mib = Some(number()?),
            "--delayed-mib" => setting.delayed_mib = Some(number()?),
            "--early-unlock" => setting.early_unlock = Some(switch(value)?),
            "--fingers" => setting.fingers = Some(switch(value)?),
            "--read-ahead" => setting.read_ahead = Some(switch(value)?),
            "--lock-times" => setting.lock_times = switch(value)?,
            "--tree-log" => setting.tree_log = Some(switch(value)?),
            "--nodatacow" => setting.nodatacow = switch(value)?,
            "--nocow-keeps-leaf" => setting.nocow_keeps_leaf = switch(value)?,
            "--lock-contention" => setting.lock_contention = switch(value)?,
            "--direct-waits" => setting.direct_waits = switch(value)?,
            "--direct-ends-at-once" => setting.direct_ends_at_once = Some(switch(value)?),
            "--seek-cursors" => setting.seek_cursors = Some(switch(value)?),
            "--read-only" => setting.read_only = switch(value)?,
            "--degraded" => setting.degraded = switch(value)?,
            "--direct-io" => setting.direct_io = switch(value)?,
            "--compress" => setting.compress = Compress::option(value)?,
            _ => bail!("unknown option\n{USAGE}"),
        }
        Ok(())
    }
}

fn switch(value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("neither on nor off\n{USAGE}"),
    }
}

fn order(value: &str) -> Result<data::Order> {
    match value {
        "sequential" => Ok(data::Order::Sequential),
        "random" => Ok(data::Order::Random),
        _ => bail!("neither sequential nor random\n{USAGE}"),
    }
}
