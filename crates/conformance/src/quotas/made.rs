//! Filesystems that have quotas from their beginning: as mkfs.btrfs makes them, with what `--rootdir` fills them with counted, and
//! Linux counts on.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Run, btrfs_check};
use serde_json::Value;

use crate::quotas::{CountingSide, fill, groups, judge};
use crate::support::{MOUNTED, mkfs_empty};

const MIB: u64 = 1 << 20;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("mkfs/quota-empty", &MOUNTED, |bench| empty(bench, "quota")),
        Case::new("mkfs/quota-rootdir", &MOUNTED, |bench| rootdir(bench, "quota")),
        Case::new("mkfs/squota-empty", &MOUNTED, |bench| empty(bench, "squota")),
        Case::new("mkfs/squota-rootdir", &MOUNTED, |bench| rootdir(bench, "squota")),
    ]
}

/// All groups without their limits: mkfs.btrfs 6.14 writes what happens to be in its memory there.
fn sums(bench: &Bench, image: &Path) -> Result<Vec<Value>> {
    let mut groups = groups(bench, image)?;
    for group in groups.iter_mut().filter_map(Value::as_object_mut) {
        group.retain(|name, _| !name.starts_with("max_"));
    }
    Ok(groups)
}

/// Empty ones say the same as those of mkfs.btrfs, and we and Linux both go on.
fn empty(bench: &Bench, feature: &str) -> Result<()> {
    let images = ["ours", "linux"].map(|name| bench.scratch.file(name));
    let [ours, theirs] = &images;
    mkfs_empty(bench.creamery(), &["-O", feature], "512M", ours)?;
    fs::File::create(theirs)?.set_len(512 * MIB)?;
    Run::new("mkfs.btrfs").args(["-q", "-O", feature]).arg(theirs).ok()?;
    let status = |image| -> Result<String> {
        Ok(bench.creamery().run(["quota", "status"]).arg(image).ok()?.stdout_text())
    };
    for image in &images {
        ensure!(sums(bench, image)? == sums(bench, theirs)?, "{:#?}", groups(bench, image)?);
        ensure!(
            status(image)? == status(theirs)? && status(image)?.contains("Inconsistent:  no"),
            "{}",
            status(image)?
        );
        for linux in [true, false] {
            let side = if linux {
                CountingSide::linux(bench, image)?
            } else {
                CountingSide::ours(bench, image, "")?
            };
            let name = if linux { "a" } else { "b" };
            side.call(bench, "subvolume create", &[name])?;
            fill(&side.dir().join(name).join("file"), 2 * MIB, 1)?;
            fill(&side.dir().join(format!("file {name}")), MIB, 2)?;
            side.end(bench)?;
            judge(bench, image, feature == "squota")?;
        }
    }
    ensure!(
        sums(bench, ours)? == sums(bench, theirs)?,
        "{:#?}",
        [groups(bench, ours)?, groups(bench, theirs)?]
    );
    Ok(())
}

/// What a filesystem is filled with counts for the subvolumes that it is in.
fn rootdir(bench: &Bench, feature: &str) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    fs::create_dir_all(source.join("sub/deep"))?;
    for number in 0..300 {
        fill(&source.join(format!("{number}")), number * 40, number)?;
    }
    fill(&source.join("large"), 3 * MIB, 1)?;
    fill(&source.join("sub/deep/large"), 5 * MIB, 2)?;
    fs::write(source.join("zeros"), vec![0; 1 << 20])?;
    for (number, options) in
        [&[][..], &["--shrink"], &["-n", "4096", "--compress", "zstd"]].iter().enumerate()
    {
        let image = bench.scratch.file(&format!("{number}.img"));
        let run = bench.creamery().run(["mkfs", "-O", feature, "--subvol", "sub"]).args(*options);
        run.arg("--rootdir").arg(&source).arg(&image).ok()?;
        btrfs_check(&image)?;
        let found = groups(bench, &image)?;
        let bytes = |at: usize| found[at]["referenced"].as_u64().unwrap_or_default();
        ensure!(found.len() == 2, "{found:#?}");
        ensure!((4 * MIB..7 * MIB).contains(&bytes(0)), "{options:?}: {found:#?}");
        ensure!((5 * MIB..6 * MIB).contains(&bytes(1)), "{options:?}: {found:#?}");
        judge(bench, &image, feature == "squota")?;
    }
    Ok(())
}
