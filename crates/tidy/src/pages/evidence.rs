//! What the trust rests on, in five points with numbers.

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::coverage::{Sheet, counts};
use crate::expected::Expected;
use creamery_workspace::{files, read};

/// The power cuts of a proof, and the number of them that Linux and `btrfs check` judge.
pub const POWER_CUTS: (u32, u32) = (3000, 200);

/// The five points, each with the page or folder that tells more.
pub(super) fn points(sheets: &[Sheet]) -> Result<String> {
    let (works, rows) = counts(sheets);
    let (pjdfstest, fstests) =
        (Expected::read("suite-pjdfstest.toml")?, Expected::read("suite-fstests.toml")?);
    let collection: Table = read("docs/coverage/suite-btrfs-progs.toml")?.parse()?;
    let images =
        ["broken", "clean", "foreign"].iter().map(|list| len(&collection, list)).sum::<Result<usize>>()?;
    let differs = collection.get("ours_differs").and_then(Value::as_table).map_or(0, Table::len);
    let targets = files("fuzz/fuzz_targets", &[".rs"])?.len();
    let (states, judged) = POWER_CUTS;
    let points = [
        format!(
            "{works} of {rows} features, commands, options and keys of Btrfs work, and each of them names the test that shows it: \
             [coverage](docs/coverage.md)."
        ),
        format!(
            "{states} simulated power cuts before a release: each leaves a state that the last sync allows. Linux and `btrfs check` \
             judge {judged} of them: [proof](docs/internals/proof.md)."
        ),
        format!(
            "pjdfstest: {} of the {} cases that Linux' own Btrfs passes. fstests, generic quick: {} of {}; the others and their \
             reasons: [suites](docs/internals/proof.md#other-peoples-suites).",
            pjdfstest.passed(),
            pjdfstest.kernel.len(),
            fstests.passed(),
            fstests.kernel.len()
        ),
        format!(
            "`creamery check` has the verdict of btrfs-progs' authors on {} of the {images} images that they test their own check \
             with: [findings](docs/use/findings.md).",
            images - differs
        ),
        format!(
            "{targets} fuzz targets feed it hostile images, logs, archives and requests; every input that once failed runs with every \
             change: [fuzzing](docs/internals/fuzzing.md)."
        ),
    ];
    Ok(points.iter().fold(String::new(), |text, point| text + "- " + point + "\n"))
}

fn len(table: &Table, list: &str) -> Result<usize> {
    table.get(list).and_then(Value::as_array).map(Vec::len).with_context(|| format!("no list {list:?}"))
}
