//! `bench dbench`: the work of clients of a file server, by dbench itself on mounts; and its load file replayed by `creamery-bench` through
//! the library and on mounts.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use creamery_testkit::{CpuMeter, Judge, Run};

use super::rounds::{needs, rounds};
use super::stage::{At, DurableStage, SideOptions, Who};
use crate::measure::median;
use crate::options::{BesideOptions, options};
use crate::report::publish;

const CLIENTS: u64 = 16;
const SECONDS: u64 = 20;
const LIMIT: Duration = Duration::from_secs(300);
const LOAD: &str = "/usr/share/dbench/client.txt";
const SAYS: &str = "16 clients for 20 s (behind 4 s that are not counted), files written in place (`nodatacow`): dbench on the mounts, and its load file replayed by one program on all";

const BY_DBENCH: [SideOptions; 3] = [
    SideOptions::new("kernel", Who::Kernel).mount("nodatacow"),
    SideOptions::new("mount", Who::Mount).mount("nodatacow"),
    SideOptions::new("mount, no logs", Who::Mount).mount("nodatacow,notreelog"),
];

const REPLAYED: [SideOptions; 5] = [
    SideOptions::new("kernel", Who::Kernel).mount("nodatacow"),
    SideOptions::new("library", Who::Library).words(&[("--nodatacow", "on")]),
    SideOptions::new("library, no logs", Who::Library).words(&[("--nodatacow", "on"), ("--tree-log", "off")]),
    SideOptions::new("library, leaf kept", Who::Library)
        .words(&[("--nodatacow", "on"), ("--nocow-keeps-leaf", "on")]),
    SideOptions::new("mount", Who::Mount).mount("nodatacow"),
];

/// The result of a run.
#[derive(Clone, Default)]
pub(super) struct Ran {
    /// MB/s, by dbench's definition.
    rate: f64,
    /// CPU seconds for each second.
    cpu: f64,
    /// For each kind of request: the count, and the average and maximum time in milliseconds.
    latencies: BTreeMap<String, [f64; 3]>,
}

struct DbenchRow {
    scene: &'static str,
    way: &'static SideOptions,
    ran: Vec<Ran>,
}

type Play = fn(&DurableStage, At<'_>) -> Result<Ran>;

/// `cargo xtask bench dbench`.
pub(crate) fn dbench(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 0, bytes: 0, runs: 3, dry: false }, words)?;
    needs("dbench", Judge::Tool("dbench"))?;
    let stage = DurableStage::new("dbench")?;
    let mut rows = Vec::new();
    let scenes: [(_, &'static [SideOptions], Play); 2] =
        [("dbench", &BY_DBENCH, by_dbench), ("replayed", &REPLAYED, replayed)];
    for (scene, ways, run) in scenes {
        let played = rounds(ways, options.runs, scene, |way| stage.once(way, |at| run(&stage, at)))?;
        rows.extend(ways.iter().zip(played).map(|(way, ran)| DbenchRow { scene, way, ran }));
    }
    let text = format!(
        "{}\n{}\n`cargo xtask bench dbench --runs {}`: {SAYS}. `-m single`, the kernel's with `-o ssd` on a loop device, all on one tmpfs, ways in turn, medians of {}; `btrfs check` accepted each image of ours.",
        throughput(&rows),
        latencies(&rows),
        options.runs,
        options.runs
    );
    publish("bench dbench", &text, options.dry)
}

fn by_dbench(_: &DurableStage, at: At<'_>) -> Result<Ran> {
    let cpu = CpuMeter::start(at.servers)?;
    let run = Run::new("dbench").args(["-t", &SECONDS.to_string(), "-c", LOAD, "-D"]);
    let said = run.arg(at.mounted()?).arg(CLIENTS.to_string()).limit(LIMIT).ok()?;
    let cpu = cpu.elapsed()?.as_secs_f64();
    let mut ran = parse(&String::from_utf8_lossy(&said.stdout))?;
    // The warm-up is part of the CPU time.
    ran.cpu = cpu / (SECONDS as f64 * 1.2);
    Ok(ran)
}

fn replayed(stage: &DurableStage, at: At<'_>) -> Result<Ran> {
    let words =
        [("--load", LOAD.to_owned()), ("--threads", CLIENTS.to_string()), ("--seconds", SECONDS.to_string())];
    let said = stage.bench("replay", &at, words.into())?;
    let mut latencies = BTreeMap::new();
    for name in said.names(&["latencies"]) {
        let of = |what| said.at(&["latencies", &name, what]);
        let row = [of("count")?, of("average_seconds")? * 1e3, of("worst_seconds")? * 1e3];
        latencies.insert(name.clone(), row);
    }
    let rate = said.number("bytes")? / (SECONDS as f64 * f64::from(1 << 20));
    Ok(Ran { rate, cpu: said.number("cpu_seconds")? / (SECONDS as f64 * 1.2), latencies })
}

/// Parses dbench's final output: a table of kinds of requests, and the throughput.
fn parse(said: &str) -> Result<Ran> {
    let mut ran = Ran::default();
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Throughput", rate, ..] => ran.rate = rate.parse()?,
            [name, count, average, most] => {
                let numbers = [count, average, most].map(str::parse);
                if let [Ok(count), Ok(average), Ok(most)] = numbers {
                    ran.latencies.insert(name.to_owned(), [count, average, most]);
                }
            }
            _ => {}
        }
    }
    (ran.rate > 0.0 && !ran.latencies.is_empty()).then_some(ran).context("dbench says no throughput")
}

impl DbenchRow {
    fn middle(&self, of: impl Fn(&Ran) -> f64) -> f64 {
        median(&self.ran.iter().map(of).collect::<Vec<_>>())
    }
}

fn throughput(rows: &[DbenchRow]) -> String {
    let mut text =
        "| | way | MB/s | of the kernel's | CPU seconds of a second | CPU ms of a MB |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        let kernel = rows.iter().find(|other| other.scene == row.scene && other.way.who == Who::Kernel);
        let (rate, cpu) = (row.middle(|ran| ran.rate), row.middle(|ran| ran.cpu));
        text += &format!(
            "| {} | {} | {rate:.0} | {:.2} | {cpu:.2} | {:.2} |\n",
            row.scene,
            row.way.name,
            rate / kernel.map_or(f64::NAN, |kernel| kernel.middle(|ran| ran.rate)),
            cpu * 1e3 / rate,
        );
    }
    text
}

/// Average and maximum times of the kernel beside those of the mount and the library.
fn latencies(rows: &[DbenchRow]) -> String {
    let find = |scene, who| rows.iter().find(|row| row.scene == scene && row.way.who == who);
    let sides = [
        ("kernel", find("dbench", Who::Kernel)),
        ("mount", find("dbench", Who::Mount)),
        ("kernel, replayed", find("replayed", Who::Kernel)),
        ("library, replayed", find("replayed", Who::Library)),
    ];
    table(&sides.map(|(name, row)| (name, row.expect("each way is there"))))
}

fn table(sides: &[(&str, &DbenchRow)]) -> String {
    let mut text = "| average, worst in ms |".to_owned();
    text.extend(sides.iter().map(|(name, _)| format!(" {name} |")));
    text += &format!("\n|---{}|\n", "|---".repeat(sides.len()));
    let names: Vec<_> = sides[0].1.ran[0].latencies.keys().collect();
    for name in names.into_iter().filter(|name| !name.ends_with("lockX") && *name != "LockX") {
        text += &format!("| {name} |");
        for (_, row) in sides {
            // Not every kind occurs in each run.
            let taken: Vec<_> = row.ran.iter().filter_map(|ran| ran.latencies.get(name)).collect();
            let of = |at: usize| median(&taken.iter().map(|row| row[at]).collect::<Vec<_>>());
            text +=
                &if taken.is_empty() { " - |".to_owned() } else { format!(" {:.3}, {:.0} |", of(1), of(2)) };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{BY_DBENCH, DbenchRow, Ran, parse, table};

    #[test]
    fn a_kind_that_did_not_come_in_each_run_is_told_of_those_in_which_it_did() {
        let ran = |kinds: &[(&str, f64)]| Ran {
            latencies: kinds.iter().map(|(name, took)| ((*name).to_owned(), [1.0, *took, *took])).collect(),
            ..Ran::default()
        };
        let row = |ran| DbenchRow { scene: "dbench", way: &BY_DBENCH[0], ran };
        let all = row(vec![ran(&[("Flush", 1.0), ("Deltree", 3.0)]), ran(&[("Flush", 1.0)])]);
        let none = row(vec![ran(&[("Flush", 2.0)])]);
        let told = table(&[("kernel", &all), ("mount", &none)]);
        assert!(told.contains("| Deltree | 3.000, 3 | - |"), "{told}");
        assert!(told.contains("| Flush | 1.000, 1 | 2.000, 2 |"), "{told}");
    }

    #[test]
    fn what_dbench_prints_is_read() {
        let said = "
 Operation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX       4242     0.505   198.062
 Flush            297     8.200   160.000

Throughput 215.5 MB/sec  16 clients  16 procs  max_latency=198.070 ms
";
        let ran = parse(said).expect("a throughput");
        assert_eq!((ran.rate, ran.latencies.len()), (215.5, 2));
        assert_eq!(ran.latencies["Flush"], [297.0, 8.2, 160.0]);
        assert!(parse("").is_err());
    }
}
