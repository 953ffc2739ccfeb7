//! Random sequences of operations, held against the model.

use std::sync::Arc;

use anyhow::{Context, Result};

use crate::device::SimDevice;
use crate::driver::Driver;
use crate::fresh::{MadeBy, fresh_image};
use crate::image::Image;
use crate::operation::{Generator, Operation, Taste};

/// Operations between two commits, about.
const PER_COMMIT: u64 = 60;
/// Operations between two comparisons of everything.
const PER_COMPARE: u64 = 250;
/// Operations between two restarts.
const PER_RESTART: u64 = 1000;

/// Runs `count` operations that follow from `seed`, compares all results, everything now and then, and everything
/// after a last restart. Returns the image.
///
/// # Errors
/// Where engine and model differ, with the seed and the number of the operation.
pub fn random_run(seed: u64, count: u64, made_by: &MadeBy, taste: Taste) -> Result<Image> {
    let device = Arc::new(SimDevice::new(fresh_image(made_by)?));
    let mut driver = Driver::open_fresh(&device)?;
    let mut generator = Generator::new(seed, taste);
    for number in 0..count {
        let place = || format!("seed {seed}, operation {number}");
        let operation = match generator.random.below(PER_COMMIT) {
            0 => Operation::Sync,
            _ => generator.next(driver.model()),
        };
        if std::env::var_os("TRACE").is_some() { eprintln!("{number} {operation:?}"); }
        driver.apply(&operation).with_context(place)?;
        if number % PER_COMPARE == PER_COMPARE - 1 {
            driver.compare().with_context(place)?;
        }
        if number % PER_RESTART == PER_RESTART - 1 {
            driver = driver.restart(&device).with_context(place)?;
        }
    }
    driver.restart(&device).with_context(|| format!("seed {seed}, the last restart"))?;
    Ok(device.image())
}
