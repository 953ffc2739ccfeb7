//! Checks an image: `check [--check-data-csum] [--threads N] IMAGE...`.
use std::sync::Arc;

use creamery_check::{CheckOptions, NoProgress, check, exit_status};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_volume::{Mode, Volume};

fn main() -> std::process::ExitCode {
    let mut options = CheckOptions::default();
    let mut devices: Vec<Arc<dyn BlockDevice>> = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--check-data-csum" => options.check_data_csum = true,
            "--threads" => options.threads = words.next().and_then(|word| word.parse().ok()).unwrap_or(1),
            path => match FileDevice::open(path, Access::ReadOnly) {
                Ok(device) => devices.push(Arc::new(device)),
                Err(error) => {
                    eprintln!("{error}");
                    return 8.into();
                }
            },
        }
    }
    let outcome =
        Volume::open(devices, Mode::ReadOnly).and_then(|volume| check(&volume, &options, &NoProgress));
    match &outcome {
        Ok(report) => {
            report.findings.iter().for_each(|finding| println!("{finding}"));
            println!("{:?}", report.counts);
        }
        Err(error) => eprintln!("{error}"),
    }
    exit_status(&outcome).into()
}
