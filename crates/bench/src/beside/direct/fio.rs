//! fio, and what it says.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use creamery_testkit::{CpuMeter, Run};
use serde_json::Value;

use super::taken::{DirectScale, DirectTaken};

/// The job; how large and how long comes with it.
const JOB: [&str; 11] = [
    "--name=direct",
    "--rw=randrw",
    "--bssplit=4k/20:8k/20:16k/20:32k/10:64k/10:128k/5:256k/5:512k/5:1m/5",
    "--ioengine=io_uring",
    "--iodepth=64",
    "--numjobs=4",
    "--thread",
    "--direct=1",
    "--fallocate=posix",
    "--group_reporting",
    "--output-format=json",
];
/// On top of the time of a run.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the job on `file`, which a mount with these servers has, for so long.
pub(super) fn fio(
    file: &Path,
    servers: &[u32],
    DirectScale { bytes, seconds }: DirectScale,
) -> Result<DirectTaken> {
    let cpu = CpuMeter::start(servers)?;
    let job = Run::new("fio").args(JOB).arg(format!("--filename={}", file.display()));
    let job = job.arg(format!("--filesize={bytes}")).arg(format!("--runtime={seconds}")).arg("--time_based");
    let said = job.limit(LIMIT + Duration::from_secs(seconds)).ok()?.stdout_text();
    taken(&said, cpu.elapsed()?.as_secs_f64())
}

/// What fio said, in which there may be notes before the document.
fn taken(said: &str, cpu_seconds: f64) -> Result<DirectTaken> {
    let document = said.find('{').map(|at| &said[at..]).context("fio says nothing")?;
    let said: Value = serde_json::from_str(document).context("reading what fio says")?;
    let of = |way: &str, name: &str| {
        said["jobs"][0][way][name].as_f64().with_context(|| format!("fio says no {way}.{name}"))
    };
    let bytes = of("read", "io_bytes")? + of("write", "io_bytes")?;
    let millis = of("read", "runtime")?.max(of("write", "runtime")?);
    Ok(DirectTaken { bytes, seconds: millis / 1e3, cpu_seconds })
}

#[cfg(test)]
mod tests {
    use super::taken;

    #[test]
    fn reads_and_writes_count_together() {
        let said = "note: both iodepth >= 1\n{\"jobs\":[{\"read\":{\"io_bytes\":3145728,\"runtime\":2000},\"write\":{\"io_bytes\":1048576,\"runtime\":1990}}]}";
        let taken = taken(said, 3.0).unwrap();
        assert_eq!((taken.bytes, taken.seconds, taken.cpu_seconds), (4_194_304.0, 2.0, 3.0));
        assert!(super::taken("fio: failed\n", 1.0).is_err());
    }
}
