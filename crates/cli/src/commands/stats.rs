//! `creamery stats`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use creamery::ErrorKind;
use creamery::error::{Aborted, Escaped};
use creamery::statistics::{BackgroundStatistics, Distribution, Statistics, TreeStatistics};
use creamery::subvolume::NamedTree;
use creamery_mount::{MountStatistics, Requests};

use crate::failure::Failure;
use crate::output::{Output, writing};
use crate::size::Human;
use crate::time::Span;

/// Show what a live mount has done since it was mounted.
///
/// The usual figures: commits, fsyncs, data that waits in memory, memory, the cache, reads from and
/// writes to the devices, and the kernel's requests. --all and --json print all figures. The
/// mount answers while it works; asking changes nothing.
///
/// Examples:
///   creamery stats /mnt
///   creamery stats --json disk.img | jq .filesystem.commits.duration_micros.p99
///   creamery stats --watch=5 /mnt
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct StatsArgs {
    /// The mount point, a path below it, or the image.
    #[arg(value_name = "DIR|IMAGE")]
    pub(crate) place: PathBuf,

    /// Everything: also each cache, each tree, parts of memory, and each kind of request.
    #[arg(short = 'a', long)]
    pub(crate) all: bool,

    /// Print JSON with everything; names ending in _micros are microseconds, those ending in _bytes are bytes.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print again at this interval [default: 1] until it is unmounted; JSON on one line each time.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) watch: Option<u64>,
}

pub(crate) fn run(args: &StatsArgs) -> Result<(), Failure> {
    print(args, &ask(args)?)?;
    while let Some(seconds) = args.watch {
        std::thread::sleep(Duration::from_secs(seconds));
        match creamery_mount::statistics(&args.place) {
            Ok(done) => print(args, &done)?,
            // The filesystem was unmounted meanwhile.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => break,
            Err(error) => return Err(Failure::new("stats", error)),
        }
    }
    Ok(())
}

fn ask(args: &StatsArgs) -> Result<MountStatistics, Failure> {
    creamery_mount::statistics(&args.place).map_err(|error| {
        let not_ours = error.kind() == ErrorKind::InvalidInput;
        let failure = Failure::new("stats", error);
        if not_ours {
            failure.advise("mount it with `creamery mount IMAGE DIR` and name either")
        } else {
            failure
        }
    })
}

fn print(args: &StatsArgs, done: &MountStatistics) -> Result<(), Failure> {
    let mut out = Output::new();
    let printed = match (args.json, args.watch) {
        (true, None) => serde_json::to_writer_pretty(&mut out, done).map_err(Into::into),
        (true, Some(_)) => serde_json::to_writer(&mut out, done).map_err(Into::into),
        (false, _) => for_people(&mut out, args, done),
    };
    let printed = printed.and_then(|()| writeln!(out)).map_err(writing);
    printed.and_then(|()| out.finish()).map_err(|error| Failure::new("stats", error))
}

fn for_people(out: &mut Output, args: &StatsArgs, done: &MountStatistics) -> std::io::Result<()> {
    let filesystem = &done.filesystem;
    // At least a second, the precision of the output.
    let mounted = Span(Duration::from_secs(done.mounted_seconds.max(1)));
    writeln!(out, "{}: mounted for {mounted}", Escaped(args.place.as_os_str().as_bytes()))?;
    if let Some(aborted) = &filesystem.aborted {
        writeln!(out, "\nABORTED: the mount is read-only, and changes after the last commit are lost")?;
        let Aborted { transaction, phase, place, reason, .. } = aborted;
        writeln!(out, "  transaction {transaction}, at {place}, phase {phase}: {reason}")?;
    }
    if done.lost_writes > 0 {
        writeln!(
            out,
            "\nLOST: {} writes of mapped pages failed (reported by msync and fsync)",
            done.lost_writes
        )?;
    }
    let lost = filesystem.writeback.failures;
    if lost > 0 {
        writeln!(out, "\nLOST: {lost} runs of written data could not be written back (reported by fsync)")?;
    }
    if let Some(log) = &done.log {
        writeln!(out, "log: {}", Escaped(log.as_bytes()))?;
    }
    if args.all { everything(out, done) } else { first(out, done) }
}

/// `part` of `whole` in percent, rounded down.
fn percent(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(100)
}

/// Prints the eight lines that answer the most frequent questions.
fn first(out: &mut Output, done: &MountStatistics) -> std::io::Result<()> {
    let Statistics { commits, fsyncs, logs, writeback, memory, block_cache, volume, .. } = &done.filesystem;
    let mut line = |name: &str, figure: String, more: String| {
        let between = if more.is_empty() { "" } else { "   " };
        writeln!(out, "  {name:<32}{figure:>12}{between}{more}")
    };
    let longest = |times: &Distribution| {
        let span = |micros| Span(Duration::from_micros(micros));
        if times.count == 0 {
            return String::new();
        }
        format!("half in {}, longest {}", span(times.p50), span(times.max))
    };
    let looks = block_cache.hits + block_cache.misses;
    let sum = |count: fn(&Requests) -> u64| done.requests.values().map(count).sum::<u64>();
    line("commits", commits.count.to_string(), longest(&commits.duration_micros))?;
    let by_commit = fsyncs.names + fsyncs.extents + fsyncs.refused;
    let more = format!("{} by a log, {by_commit} by a commit; {} logs", fsyncs.logged, logs.count);
    line("fsyncs", (fsyncs.logged + by_commit).to_string(), more)?;
    let waits = Human(writeback.delayed_bytes).to_string();
    line("written data in memory", waits, format!("{} runs could not be written", writeback.failures))?;
    line("memory", Human(memory.total_bytes).to_string(), String::new())?;
    let found = percent(block_cache.hits, looks);
    line("tree blocks found in the cache", format!("{found}%"), format!("of {looks}"))?;
    let blocks = format!("and {} tree blocks", volume.tree_block_reads);
    line("data read from devices", Human(volume.data_read_bytes).to_string(), blocks)?;
    line("written to devices", Human(volume.write_bytes).to_string(), String::new())?;
    let time = Span(Duration::from_micros(sum(|requests| requests.sum_micros)));
    line("requests", sum(|requests| requests.count).to_string(), format!("in {time}"))
}

fn everything(out: &mut Output, done: &MountStatistics) -> std::io::Result<()> {
    let filesystem = &done.filesystem;
    writeln!(out, "\nCommits")?;
    line(out, "count", filesystem.commits.count)?;
    line(out, "tree_blocks_written", filesystem.commits.tree_blocks_written)?;
    spread(out, "duration", &filesystem.commits.duration_micros)?;
    spread(out, "gate closed", &filesystem.commits.gate_closed_micros)?;
    logs(out, filesystem)?;
    writeln!(out, "\nWaiting for the next commit")?;
    line(out, "promised_bytes", filesystem.pending.promised_bytes)?;
    line(out, "delayed_refs", filesystem.pending.delayed_refs)?;
    line(out, "delayed_directories", filesystem.pending.delayed_directories)?;
    line(out, "direct_in_flight", filesystem.pending.direct_in_flight)?;
    writeln!(out, "\nCache")?;
    line(out, "inodes", filesystem.inodes_cached)?;
    filesystem.block_cache.named().try_for_each(|(name, count)| line(out, name, count))?;
    writeln!(out, "\nMemory")?;
    line(out, "total_bytes", filesystem.memory.total_bytes)?;
    filesystem.memory.parts().try_for_each(|(name, bytes)| line(out, name, bytes))?;
    writeln!(out, "\nWriteback")?;
    filesystem.writeback.named().try_for_each(|(name, count)| line(out, name, count))?;
    writeln!(out, "\nIn place")?;
    filesystem.nocow.named().try_for_each(|(name, count)| line(out, name, count))?;
    writeln!(out, "\nDirect")?;
    filesystem.direct.named().try_for_each(|(name, count)| line(out, name, count))?;
    writeln!(out, "\nDirect, without waiting")?;
    filesystem.nowait.named().try_for_each(|(name, count)| line(out, name, count))?;
    writeln!(out, "\nSeek")?;
    filesystem.seek.named().try_for_each(|(name, count)| line(out, name, count))?;
    writeln!(out, "\nBackground")?;
    filesystem.background.iter().try_for_each(|work| background(out, work))?;
    writeln!(out, "\nDevices")?;
    filesystem.volume.named().try_for_each(|(name, count)| line(out, name, count))?;
    writeln!(out, "\nTrees")?;
    trees(out, &filesystem.trees, &filesystem.by_tree)?;
    if !filesystem.contention.is_empty() {
        writeln!(out, "\nLocks found taken, by rank, outer ranks first")?;
        filesystem.contention.iter().try_for_each(|of| line(out, &of.rank, of.count))?;
    }
    writeln!(out, "\nRequests")?;
    let mut requests: Vec<(&String, &Requests)> = done.requests.iter().collect();
    requests.sort_by_key(|(_, requests)| std::cmp::Reverse(requests.count));
    for (name, requests) in requests {
        let sum = Duration::from_micros(requests.sum_micros);
        let nanos = u64::try_from(sum.as_nanos()).unwrap_or(u64::MAX) / requests.count.max(1);
        let (sum, each) = (Span(sum), Duration::from_nanos(nanos));
        writeln!(out, "  {:<32}{:>12}   in {sum}, {:.1}us each", spaced(name), requests.count, micros(each))?;
    }
    Ok(())
}

fn background(out: &mut Output, work: &BackgroundStatistics) -> std::io::Result<()> {
    let BackgroundStatistics { name, steps, failures, last_failure, running_micros, .. } = work;
    write!(out, "  {name:<32}{steps:>12} steps")?;
    if let Some(running) = running_micros {
        write!(out, ", one for {} now", Span(Duration::from_micros(*running)))?;
    }
    if let Some(failure) = last_failure {
        write!(out, ", {failures} failed, the last one: {failure}")?;
    }
    writeln!(out)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Prints a count, or a size if the name says that it is one.
fn line(out: &mut Output, name: &str, count: u64) -> std::io::Result<()> {
    match name.strip_suffix("_bytes") {
        Some(name) => writeln!(out, "  {:<32}{:>12}", spaced(name), Human(count)),
        None => writeln!(out, "  {:<32}{count:>12}", spaced(name)),
    }
}

fn logs(out: &mut Output, filesystem: &Statistics) -> std::io::Result<()> {
    writeln!(out, "\nLogs")?;
    line(out, "count", filesystem.logs.count)?;
    line(out, "tree_blocks_written", filesystem.logs.tree_blocks_written)?;
    spread(out, "duration", &filesystem.logs.duration_micros)?;
    filesystem.fsyncs.named().try_for_each(|(name, count)| line(out, name, count))
}

fn spread(out: &mut Output, name: &str, times: &Distribution) -> std::io::Result<()> {
    if times.count == 0 {
        return Ok(());
    }
    let span = |micros| Span(Duration::from_micros(micros));
    let (p50, p99, max) = (span(times.p50), span(times.p99), span(times.max));
    writeln!(
        out,
        "  {name:<20}half in {p50}, 99 of 100 in {p99}, longest {max}, together {}",
        span(times.sum)
    )
}

/// Trees shown beside the total: those with the most searches.
const TREES_SHOWN: usize = 5;

/// Prints one row for each counter, with one column for each tree.
fn trees(out: &mut Output, all: &TreeStatistics, each: &[NamedTree]) -> std::io::Result<()> {
    let mut busiest: Vec<&NamedTree> =
        each.iter().filter(|tree| tree.counts != TreeStatistics::default()).collect();
    busiest.sort_by_key(|tree| std::cmp::Reverse(tree.counts.searches));
    busiest.truncate(TREES_SHOWN);
    write!(out, "  {:<24}{:>14}", "", "all")?;
    busiest.iter().try_for_each(|tree| write!(out, "{:>14}", tree_name(tree.tree)))?;
    writeln!(out)?;
    for (row, (name, count)) in all.named().enumerate() {
        write!(out, "  {:<24}{count:>14}", spaced(name))?;
        let counts = busiest.iter().filter_map(|tree| tree.counts.named().nth(row));
        counts.into_iter().try_for_each(|(_, count)| write!(out, "{count:>14}"))?;
        writeln!(out)?;
    }
    Ok(())
}

fn tree_name(tree: u64) -> String {
    let name = match tree {
        1 => "root",
        2 => "extent",
        3 => "chunk",
        4 => "device",
        5 => "top level",
        7 => "checksum",
        9 => "uuid",
        10 => "free space",
        11 => "block group",
        _ => return format!("{tree}"),
    };
    format!("{tree} {name}")
}

fn spaced(name: &str) -> String {
    name.replace('_', " ")
}
