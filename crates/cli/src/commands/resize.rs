//! `creamery filesystem resize`.

use std::ffi::OsString;
use std::str::FromStr;

use clap::Args;
use creamery::ErrorKind;
use creamery::error::Escaped;
use creamery::id::DevId;
use creamery::volume::{NewSize, Resized};

use super::subvolume::target::OnMount;
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::size::{Human, Size};
use crate::view::WriteArgs;

/// Make a filesystem larger.
///
/// An image file that is too short is extended. max is the length of the file, of the partition
/// or of the block device. With a plus, the filesystem grows by SIZE. Shrinking is not supported.
///
/// Examples:
///   creamery filesystem resize 20G disk.img
///   creamery filesystem resize +1G disk.raw@2
///   creamery filesystem resize max /mnt
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ResizeArgs {
    /// Ignored: there is no other operation to wait for.
    #[arg(long)]
    enqueue: bool,

    /// The device [default: 1], and the new size, such as 20G, or how much more.
    #[arg(value_name = "[DEVID:][+]SIZE|[DEVID:]max", allow_hyphen_values = true)]
    size: SizeOf,

    /// The image, or a path on a live mount.
    #[arg(value_name = "IMAGE|PATH")]
    place: OsString,

    /// Write from another superblock copy if the first one is damaged; changes synced after the last commit are lost.
    #[arg(long)]
    usesupercopy: bool,
}

/// A device's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SizeOf(DevId, NewSize);

impl FromStr for SizeOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (device, size) = match text.split_once(':') {
            Some((device, size)) => {
                let number = device.parse().map_err(|_| format!("invalid device ID '{device}'"))?;
                (DevId::new(number), size)
            }
            None => (DevId::new(1), text),
        };
        let bytes = |text: &str| text.parse().map(|Size(bytes)| bytes);
        Ok(Self(
            device,
            match (size, size.strip_prefix('+'), size.strip_prefix('-')) {
                ("max", ..) => NewSize::Max,
                (_, Some(more), _) => NewSize::More(bytes(more)?),
                (_, _, Some(less)) => NewSize::Less(bytes(less)?),
                _ => NewSize::Bytes(bytes(size)?),
            },
        ))
    }
}

pub(crate) fn run(args: &ResizeArgs) -> Result<(), Failure> {
    const COMMAND: &str = "filesystem resize";
    let SizeOf(device, size) = args.size;
    if let Some(on_mount) = OnMount::of(COMMAND, &args.place)? {
        let failed =
            |error: creamery::Error| advised(Failure::new(COMMAND, error.context(on_mount.path.display())));
        tell(&on_mount.dir.resize(device, size).map_err(failed)?, size);
        return Ok(());
    }
    let write = WriteArgs { usesupercopy: args.usesupercopy, ..WriteArgs::default() };
    let mut images = Images::to_write(COMMAND, &write);
    let place = images.place(&args.place)?;
    let failed = images.failed(&place.image);
    let outcome = images.open_at(&place, Purpose::Write);
    let outcome = outcome.and_then(|fs| fs.volume().resize(device, size).map_err(failed).map_err(advised));
    images.finish(outcome.map(|resized| tell(&resized, size)))
}

/// Replaces the advice: nothing in a filesystem prevents it from growing.
fn advised(failure: Failure) -> Failure {
    match failure.kind() {
        ErrorKind::NoSpace => failure.advise("enlarge the partition or the device first"),
        _ => failure,
    }
}

/// Prints the result in the words of btrfs-progs.
fn tell(resized: &Resized, size: NewSize) {
    let Resized { device, path, from, to } = resized;
    let to = if size == NewSize::Max { "max".to_owned() } else { Human(*to).to_string() };
    crate::output::tell(format_args!(
        "Resize device id {device} ({}) from {} to {to}",
        Escaped(path.as_bytes()),
        Human(*from)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_of_a_device_whole_more_less_or_all() {
        for (text, device, size) in [
            ("1g", 1, NewSize::Bytes(1 << 30)),
            ("2:+16M", 2, NewSize::More(16 << 20)),
            ("-4k", 1, NewSize::Less(4096)),
            ("1:max", 1, NewSize::Max),
        ] {
            assert_eq!(text.parse(), Ok(SizeOf(DevId::new(device), size)), "{text}");
        }
        for text in ["", "x:1g", "1:", "cancel", "++1", "max:1", "-"] {
            assert!(text.parse::<SizeOf>().is_err(), "{text}");
        }
    }
}
