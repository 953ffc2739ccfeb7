//! Random sequences of operations, compared with the model.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use creamery_base::ErrorKind;
use creamery_fs::Filesystem;
use creamery_testkit::Random;

use crate::device::SimDevice;
use crate::driver::Driver;
use crate::fresh::{MadeBy, fresh_image};
use crate::image::Image;
use crate::operation::{Generator, Operation, Taste};
use crate::quotas;

/// Average operations between two commits.
const PER_COMMIT: u64 = 60;
/// Operations between two comparisons of everything.
const PER_COMPARE: u64 = 250;
/// Operations between two restarts.
const PER_RESTART: u64 = 1000;
/// Average operations between two changes of quota groups.
const PER_MEDDLE: u64 = 15;

/// Runs `count` operations that follow from `seed`. Compares all results, everything now and then, and everything after a last restart.
/// Returns the image.
///
/// # Errors
/// Engine and model differ; the error has the seed and the number of the operation.
pub fn random_run(seed: u64, count: u64, made_by: &MadeBy, taste: Taste) -> Result<Image> {
    let (image, refused) = random_run_on(seed, count, made_by, taste)?;
    ensure!(refused == 0, "seed {seed}: no space for {refused} operations");
    Ok(image)
}

/// Runs like [`random_run`] on a device that may be full: an operation may find no space, and then has changed nothing. Returns the image,
/// and the number of such operations.
///
/// # Errors
/// Those of [`random_run`].
pub fn random_run_on(seed: u64, count: u64, made_by: &MadeBy, taste: Taste) -> Result<(Image, u64)> {
    random_run_with(seed, count, made_by, taste, |_| {})
}

/// Runs like [`random_run_on`]. `plant` gets the filesystem first and after each restart, to set a failpoint for example.
///
/// # Errors
/// Those of [`random_run`].
pub fn random_run_with(
    seed: u64,
    count: u64,
    made_by: &MadeBy,
    taste: Taste,
    plant: impl Fn(&Filesystem),
) -> Result<(Image, u64)> {
    let device = Arc::new(SimDevice::new(fresh_image(made_by)?));
    let mut driver = Driver::open_fresh(&device)?;
    quotas::enable(driver.filesystem(), seed).with_context(|| format!("seed {seed}, quotas"))?;
    plant(driver.filesystem());
    let mut generator = Generator::new(seed, taste);
    // A generator of its own: the operations are the same without quotas.
    let mut meddling = Random::new(seed);
    let mut refused = 0;
    generator.first().try_for_each(|operation| driver.apply(&operation))?;
    for number in 0..count {
        let place = || format!("seed {seed}, operation {number}");
        let operation = match generator.random.below(PER_COMMIT) {
            0 => Operation::Sync,
            _ => generator.next(driver.model()),
        };
        if let Some(error) = driver.try_apply(&operation).with_context(place)? {
            let fair = error.kind() == ErrorKind::NoSpace && operation != Operation::Sync;
            ensure!(fair, "{}: {operation:?}: {error:?}", place());
            refused += 1;
            // Lack of space means that there is none, not that a deletion or a commit is still due.
            let fs = driver.filesystem();
            fs.clean();
            fs.sync().with_context(place)?;
            let again = driver.try_apply(&operation).with_context(place)?;
            ensure!(again.is_some(), "{}: {operation:?}: {error:?}, and there was space", place());
        }
        if meddling.below(PER_MEDDLE) == 0 {
            quotas::meddle_with_groups(driver.filesystem(), &mut meddling).with_context(place)?;
        }
        if number % PER_COMPARE == PER_COMPARE - 1 {
            driver.compare().with_context(place)?;
            quotas::ensure_counted(driver.filesystem()).with_context(place)?;
        }
        if number % PER_RESTART == PER_RESTART - 1 {
            driver = driver.restart(&device).with_context(place)?;
            quotas::ensure_counted(driver.filesystem()).with_context(place)?;
            plant(driver.filesystem());
        }
    }
    let last = || format!("seed {seed}, the last restart");
    let driver = driver.restart(&device).with_context(last)?;
    quotas::ensure_counted(driver.filesystem()).with_context(last)?;
    Ok((device.image(), refused))
}
