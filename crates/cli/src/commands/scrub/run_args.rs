//! The options of a scrub, for `start` and `resume`.

use std::path::PathBuf;

use clap::Args;

use crate::progress::ProgressArgs;
use crate::size::Size;
use crate::units::UnitArgs;
use crate::view::DeviceArgs;

/// The exit status if there is nothing to resume.
pub(super) const NOTHING: u8 = 2;

/// The message when a signal ends a scrub.
pub(super) const INTERRUPTED: &str =
    "the scrub ended early; repairs so far are kept; `creamery scrub resume` continues it";

/// How to scrub.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each option")]
pub(super) struct RunArgs {
    /// The image or device, or a partition of one (disk.raw@2), or a directory of a mount. Name each of several devices, unless with -r.
    #[arg(value_name = "IMAGE|DIR")]
    pub(super) image: PathBuf,

    /// Stay in the foreground, and print the result.
    #[arg(short = 'B')]
    pub(super) stays: bool,

    /// Print the numbers of each device.
    #[arg(short = 'd')]
    pub(super) by_device: bool,

    /// Print all numbers as they are.
    #[arg(short = 'R')]
    pub(super) all_numbers: bool,

    /// Write nothing.
    #[arg(short = 'r', long = "readonly")]
    pub(super) reads_only: bool,

    /// Rewrite parity also of data without checksums, which counts as correct.
    #[arg(long, conflicts_with = "reads_only")]
    pub(super) rewrite_parity: bool,

    /// Read at most this many bytes a second from each device; 0 is unlimited, whatever limit is set.
    #[arg(long, value_name = "SIZE")]
    pub(super) limit: Option<Size>,

    /// Class of I/O priority, as ionice(1) has it: 0 none, 1 realtime, 2 best-effort, 3 idle.
    #[arg(short = 'c', value_name = "CLASS", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(super) io_class: Option<u8>,

    /// Level within that class, from 0, the most urgent one, to 7.
    #[arg(short = 'n', value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(super) io_level: Option<u8>,

    /// Print only warnings and errors.
    #[arg(short = 'q', long, conflicts_with = "json")]
    pub(super) quiet: bool,

    /// One JSON object.
    #[arg(long, requires = "stays")]
    pub(super) json: bool,

    /// Say so on standard output when the scrub has begun, then let go of the terminal.
    #[arg(long, hide = true)]
    pub(super) announce: bool,

    #[command(flatten)]
    pub(super) units: UnitArgs,

    #[command(flatten)]
    pub(super) progress: ProgressArgs,

    #[command(flatten)]
    pub(super) set: DeviceArgs,
}

impl RunArgs {
    /// The limit that overrides the stored ones.
    pub(super) fn limit(&self) -> Option<u64> {
        self.limit.map(|Size(limit)| if limit == 0 { u64::MAX } else { limit })
    }
}

/// The command: start or resume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Start,
    Resume,
}

impl Which {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Start => "scrub start",
            Self::Resume => "scrub resume",
        }
    }
}
