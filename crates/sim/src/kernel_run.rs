//! Random sequences of operations, asked of the engine, of the model and of the host's filesystem.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use crate::device::SimDevice;
use crate::driver::Driver;
use crate::fresh::{MadeBy, fresh_image};
use crate::host::Host;
use crate::operation::{Generator, Operation, Taste};

/// Operations between two commits.
const PER_COMMIT: u64 = 150;
/// Operations between two comparisons of everything.
const PER_COMPARE: u64 = 500;

/// Runs `count` operations that follow from `seed` on the engine, the model and the empty directory `dir` of the host's,
/// where a Btrfs is mounted; compares all results, and everything now and then.
///
/// # Errors
/// Where one of them differs from the model, with the seed and the number of the operation.
pub fn kernel_run(seed: u64, count: u64, dir: &Path) -> Result<()> {
    let device = Arc::new(SimDevice::new(fresh_image(&MadeBy { len: 512 << 20, ..MadeBy::default() })?));
    let mut driver = Driver::open_fresh(&device)?;
    let mut host = Host::new(dir);
    let mut generator = Generator::new(seed, Taste { times: true, ..Taste::default() });
    let mut asked = 0;
    for number in 0..count {
        let operation = match generator.random.below(PER_COMMIT) {
            0 => Operation::Sync,
            _ => generator.next(driver.model()),
        };
        if !Host::can(driver.model(), &operation) {
            continue;
        }
        asked += 1;
        let place = || format!("seed {seed}, operation {number}: {operation:?}");
        let before = driver.model().clone();
        let wanted = before.clone().apply(&operation);
        driver.apply(&operation).with_context(place)?;
        host.apply(&before, driver.model(), &operation, &wanted).with_context(place)?;
        if number % PER_COMPARE == PER_COMPARE - 1 {
            driver.compare().and_then(|()| host.compare(driver.model())).with_context(place)?;
        }
    }
    ensure!(asked > count / 2, "seed {seed}: only {asked} of {count} operations can be asked of the host");
    driver
        .compare()
        .and_then(|()| host.compare(driver.model()))
        .with_context(|| format!("seed {seed}, the end"))
}
